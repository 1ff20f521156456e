<?php

declare(strict_types=1);

namespace Kickstand;

use Kickstand\Exception\ConnectionException;
use Kickstand\Exception\KickstandException;
use Kickstand\Internal\Ndjson;

/**
 * The results of an import, in the order of its records. The records have been sent. If the connection
 * broke before the summary, the iteration yields the results that arrived and then throws.
 *
 * @implements \IteratorAggregate<int, ImportLine>
 */
final class Import implements \IteratorAggregate
{
    private const LONGEST_LINE = 1 << 20; // bytes

    /** @var resource the results as NDJSON, in memory or, if they are many, in a temporary file */
    private $results;

    private ?KickstandException $error = null;
    private ?ImportSummary $summary = null;

    /**
     * @internal
     * @param iterable<string> $pieces
     */
    public function __construct(iterable $pieces)
    {
        $this->results = fopen('php://temp', 'w+b') ?: throw new \RuntimeException('There is no temporary file.');
        try {
            foreach ($pieces as $piece) {
                fwrite($this->results, $piece);
            }
        } catch (KickstandException $e) {
            $this->error = $e;
        }
    }

    /** @return \Generator<int, ImportLine> */
    public function getIterator(): \Generator
    {
        foreach ($this->objects() as $object) {
            if (!isset($object->summary)) {
                yield ImportLine::fromJson($object);
            }
        }
    }

    /** Returns the summary, which is the last line of the answer. */
    public function summary(): ImportSummary
    {
        if ($this->summary === null) {
            iterator_count($this->objects());
            assert($this->summary !== null);
        }
        return $this->summary;
    }

    /** @return \Generator<int, \stdClass> */
    private function objects(): \Generator
    {
        $last = null;
        foreach (Ndjson::decode($this->pieces(), self::LONGEST_LINE) as $object) {
            $last = $object;
            yield $object;
        }
        if (!($last?->summary ?? null) instanceof \stdClass) {
            throw $this->error ?? new ConnectionException('The answer was cut short: it has no summary.');
        }
        $this->summary = ImportSummary::fromJson($last->summary);
    }

    /** @return \Generator<int, string> */
    private function pieces(): \Generator
    {
        for ($offset = 0; true; $offset += strlen($piece)) {
            $piece = stream_get_contents($this->results, 1 << 16, $offset);
            if ($piece === false || $piece === '') {
                break;
            }
            yield $piece;
        }
        if ($this->error !== null) {
            throw $this->error;
        }
    }
}
