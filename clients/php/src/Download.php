<?php

declare(strict_types=1);

namespace Kickstand;

/**
 * A file of an answer. Its bytes arrive while they are read, and can be read once.
 *
 * @implements \IteratorAggregate<int, string>
 */
final class Download implements \IteratorAggregate
{
    private bool $read = false;

    /**
     * @internal
     * @param iterable<string> $pieces
     */
    public function __construct(
        public readonly string $contentType,
        /** The size in bytes, if the server sent it. */
        public readonly ?int $size,
        private readonly iterable $pieces,
    ) {
    }

    /** @return \Generator<int, string> the pieces, in order */
    public function getIterator(): \Generator
    {
        if ($this->read) {
            throw new \LogicException('The file has been read.');
        }
        $this->read = true;
        foreach ($this->pieces as $piece) {
            yield $piece;
        }
    }

    /** Reads the whole file. */
    public function contents(): string
    {
        return implode('', iterator_to_array($this, false));
    }

    /** Writes the file to a path, and removes it again if the answer is cut short. */
    public function saveTo(string $path): void
    {
        $file = fopen($path, 'wb') ?: throw new \InvalidArgumentException("The file $path cannot be written.");
        try {
            foreach ($this as $piece) {
                if (fwrite($file, $piece) !== strlen($piece)) {
                    throw new \RuntimeException("The file $path cannot be written to its end.");
                }
            }
        } catch (\Throwable $e) {
            fclose($file);
            unlink($path);
            throw $e;
        }
        fclose($file);
    }
}
