<?php

declare(strict_types=1);

namespace Kickstand\Tests;

/** Reads the vectors that all client libraries share. */
final class Vectors
{
    /** @return array<string, array{\stdClass}> the vectors of a file by name, as PHPUnit's data */
    public static function of(string $file): array
    {
        $data = [];
        foreach (self::read($file) as $vector) {
            $data[$vector->name] = [$vector];
        }
        return $data;
    }

    public static function read(string $file): mixed
    {
        $text = file_get_contents(__DIR__ . "/../../vectors/$file.json");
        return json_decode((string) $text, false, 512, JSON_THROW_ON_ERROR);
    }

    public static function key(mixed $key): string
    {
        return is_string($key) ? "sk_{$key}_" . str_repeat('k', 32) : $key->text;
    }

    /** The difference between a value and the expected one, which may have fewer members. */
    public static function difference(mixed $expected, mixed $actual, string $path = ''): ?string
    {
        if (is_float($expected) || is_float($actual)) {
            return $expected == $actual ? null : "$path: " . json_encode([$expected, $actual]);
        }
        if ($expected instanceof \stdClass && $actual instanceof \stdClass) {
            foreach ((array) $expected as $name => $value) {
                if (!property_exists($actual, (string) $name)) {
                    return "$path/$name is missing";
                }
                $difference = self::difference($value, $actual->{$name}, "$path/$name");
                if ($difference !== null) {
                    return $difference;
                }
            }
            return null;
        }
        if (is_array($expected) && is_array($actual) && count($expected) === count($actual)) {
            foreach ($expected as $i => $value) {
                $difference = self::difference($value, $actual[$i], "$path/$i");
                if ($difference !== null) {
                    return $difference;
                }
            }
            return null;
        }
        return $expected === $actual ? null : "$path: " . json_encode([$expected, $actual]);
    }

    /** A value as decoded JSON. */
    public static function plain(mixed $value): mixed
    {
        return json_decode(json_encode($value, JSON_THROW_ON_ERROR), false, 512, JSON_THROW_ON_ERROR);
    }
}
