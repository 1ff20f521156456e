<?php

declare(strict_types=1);

namespace Kickstand\Internal;

/**
 * The answer to a request of curl, as far as it has arrived. Curl calls its methods.
 *
 * @internal
 */
final class CurlAnswer
{
    public int $status = 0;

    /** @var array<string, string> by lower-case name */
    public array $headers = [];

    public bool $hasHeaders = false;

    /** The bytes that nobody has read yet. */
    public string $received = '';

    /** The time of the last progress, in seconds of a clock that never goes back. */
    public float $progress;

    public function __construct(private readonly bool $isStream)
    {
        $this->progress = self::time();
    }

    public static function time(): float
    {
        return hrtime(true) / 1e9;
    }

    public function readHeader(\CurlHandle $curl, string $line): int
    {
        if (preg_match('~^HTTP/[\d.]+ (\d{3})~', $line, $match) === 1) {
            // Headers begin anew after each interim answer (1xx).
            $this->status = (int) $match[1];
            $this->headers = [];
        } elseif (trim($line) === '') {
            $this->hasHeaders = $this->status >= 200;
        } elseif (str_contains($line, ':')) {
            [$name, $value] = explode(':', $line, 2);
            $name = strtolower(trim($name));
            $value = trim($value);
            $this->headers[$name] = isset($this->headers[$name]) ? "{$this->headers[$name]}, $value" : $value;
        }
        return strlen($line);
    }

    public function readBody(\CurlHandle $curl, string $piece): int
    {
        $this->received .= $piece;
        if ($this->isStream) {
            $this->progress = self::time();
        }
        return strlen($piece);
    }
}
