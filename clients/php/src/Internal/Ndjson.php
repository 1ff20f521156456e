<?php

declare(strict_types=1);

namespace Kickstand\Internal;

use Kickstand\Exception\ConnectionException;
use Kickstand\Exception\KickstandException;

/**
 * Newline-delimited JSON.
 *
 * @internal
 */
final class Ndjson
{
    /**
     * Decodes one object per line.
     *
     * @param iterable<string> $pieces
     * @return \Generator<int, \stdClass>
     * @throws ConnectionException if the last line is not complete
     */
    public static function decode(iterable $pieces, int $limit): \Generator
    {
        $parts = []; // of an incomplete line
        $length = 0;
        foreach ($pieces as $piece) {
            $lines = explode("\n", $piece);
            $rest = array_pop($lines);
            foreach ($lines as $line) {
                $line = implode('', $parts) . $line;
                $parts = [];
                $length = 0;
                if (trim($line) !== '') {
                    yield self::line($line);
                }
            }
            $parts[] = $rest;
            $length += strlen($rest);
            if ($length > $limit) {
                throw new KickstandException("A line of the answer is longer than $limit bytes.");
            }
        }
        if (trim(implode('', $parts)) !== '') {
            throw new ConnectionException('The answer was cut short.');
        }
    }

    private static function line(string $line): \stdClass
    {
        try {
            $value = Json::decode($line);
        } catch (\JsonException $e) {
            throw new ConnectionException("A line of the answer is not JSON: {$e->getMessage()}.", 0, $e);
        }
        return $value instanceof \stdClass
            ? $value
            : throw new ConnectionException('A line of the answer is not an object.');
    }
}
