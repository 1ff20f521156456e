<?php

declare(strict_types=1);

namespace Kickstand\Internal;

use Kickstand\Exception\KickstandException;
use Kickstand\Record;

/**
 * Reads the members of a JSON object with their types. The methods named …OrNull return null for a member
 * that is absent or null; the others refuse it.
 *
 * @internal
 */
final class Reader
{
    public function __construct(private readonly \stdClass $json, private readonly string $record)
    {
    }

    public function any(string $name): mixed
    {
        return $this->json->{$name} ?? null;
    }

    public function string(string $name): string
    {
        return $this->stringOrNull($name) ?? $this->missing($name);
    }

    public function stringOrNull(string $name): ?string
    {
        $value = $this->any($name);
        return $value === null || is_string($value) ? $value : $this->refuse($name, 'a string');
    }

    public function int(string $name): int
    {
        return $this->intOrNull($name) ?? $this->missing($name);
    }

    public function intOrNull(string $name): ?int
    {
        $value = $this->any($name);
        if (is_float($value) && $value === floor($value) && abs($value) < 2 ** 53) {
            return (int) $value;
        }
        return $value === null || is_int($value) ? $value : $this->refuse($name, 'an integer');
    }

    public function float(string $name): float
    {
        return $this->floatOrNull($name) ?? $this->missing($name);
    }

    public function floatOrNull(string $name): ?float
    {
        $value = $this->any($name);
        if ($value === null) {
            return null;
        }
        return is_numeric($value) ? (float) $value : $this->refuse($name, 'a number');
    }

    public function bool(string $name): bool
    {
        return $this->boolOrNull($name) ?? $this->missing($name);
    }

    public function boolOrNull(string $name): ?bool
    {
        $value = $this->any($name);
        return $value === null || is_bool($value) ? $value : $this->refuse($name, 'a boolean');
    }

    public function time(string $name): \DateTimeImmutable
    {
        return $this->timeOrNull($name) ?? $this->missing($name);
    }

    public function timeOrNull(string $name): ?\DateTimeImmutable
    {
        $value = $this->stringOrNull($name);
        try {
            return $value === null ? null : new \DateTimeImmutable($value);
        } catch (\Exception) {
            return $this->refuse($name, 'a time');
        }
    }

    /**
     * @template T of Record
     * @param class-string<T> $class
     * @return T
     */
    public function record(string $name, string $class): Record
    {
        return $this->recordOrNull($name, $class) ?? $this->missing($name);
    }

    /**
     * @template T of Record
     * @param class-string<T> $class
     * @return T|null
     */
    public function recordOrNull(string $name, string $class): ?Record
    {
        $value = $this->any($name);
        if ($value === null) {
            return null;
        }
        return $value instanceof \stdClass ? $class::fromJson($value) : $this->refuse($name, 'an object');
    }

    /**
     * @template T
     * @param \Closure(self, string): T $item reads an item of a name from a reader
     * @return list<T>
     */
    public function list(string $name, \Closure $item): array
    {
        return $this->listOrNull($name, $item) ?? $this->missing($name);
    }

    /**
     * @template T
     * @param \Closure(self, string): T $item reads an item of a name from a reader
     * @return list<T>|null
     */
    public function listOrNull(string $name, \Closure $item): ?array
    {
        $value = $this->any($name);
        if ($value === null) {
            return null;
        }
        return is_array($value) ? array_values($this->items($value, $item)) : $this->refuse($name, 'a list');
    }

    /**
     * @template T
     * @param \Closure(self, string): T $item reads a value of a name from a reader
     * @return array<string, T>
     */
    public function map(string $name, \Closure $item): array
    {
        return $this->mapOrNull($name, $item) ?? $this->missing($name);
    }

    /**
     * @template T
     * @param \Closure(self, string): T $item reads a value of a name from a reader
     * @return array<string, T>|null
     */
    public function mapOrNull(string $name, \Closure $item): ?array
    {
        $value = $this->any($name);
        if ($value === null) {
            return null;
        }
        return $value instanceof \stdClass ? $this->items((array) $value, $item) : $this->refuse($name, 'an object');
    }

    /**
     * @template T
     * @param array<array-key, mixed> $values
     * @param \Closure(self, string): T $item
     * @return array<array-key, T>
     */
    private function items(array $values, \Closure $item): array
    {
        $items = new self((object) $values, $this->record);
        $read = [];
        foreach ($values as $name => $_) {
            $read[$name] = $item($items, (string) $name);
        }
        return $read;
    }

    private function missing(string $name): never
    {
        throw new KickstandException("The $this->record in the answer has no $name.");
    }

    private function refuse(string $name, string $type): never
    {
        throw new KickstandException("In the $this->record in the answer $name is not $type.");
    }
}
