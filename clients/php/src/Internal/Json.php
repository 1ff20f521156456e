<?php

declare(strict_types=1);

namespace Kickstand\Internal;

/**
 * JSON as the API has it: `{}` differs from `[]`, numbers have all their digits, and times are RFC 3339.
 *
 * @internal
 */
final class Json
{
    private const DECODE = JSON_THROW_ON_ERROR | JSON_BIGINT_AS_STRING | JSON_INVALID_UTF8_SUBSTITUTE;
    private const ENCODE = JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE;

    /** @throws \JsonException */
    public static function decode(string $text): mixed
    {
        return json_decode($text, false, 512, self::DECODE);
    }

    /**
     * Encodes a body.
     *
     * @param array<string, mixed>|\JsonSerializable $body
     * @param array<string, mixed> $objects the members that are objects, with the objects in them; the
     *                                      items of a list are under `[]`, the values of a map under `{}`
     */
    public static function encode(array|\JsonSerializable $body, array $objects): string
    {
        return self::text(self::object($body, $objects));
    }

    /** The value of a query parameter. */
    public static function parameter(mixed $value): string
    {
        if ($value instanceof \DateTimeInterface) {
            return self::time($value);
        }
        return is_string($value) ? $value : self::text($value);
    }

    private static function text(mixed $value): string
    {
        $precision = ini_set('serialize_precision', '-1'); // the shortest digits that mean the same number
        try {
            return json_encode($value, self::ENCODE);
        } catch (\JsonException $e) {
            throw new \InvalidArgumentException("The value cannot be written as JSON: {$e->getMessage()}.", 0, $e);
        } finally {
            ini_set('serialize_precision', (string) $precision);
        }
    }

    private static function time(\DateTimeInterface $time): string
    {
        $utc = \DateTimeImmutable::createFromInterface($time)->setTimezone(new \DateTimeZone('UTC'));
        return $utc->format('Y-m-d\TH:i:s.v\Z');
    }

    /**
     * @param array<string, mixed> $objects
     */
    private static function object(mixed $value, array $objects): mixed
    {
        if (isset($objects['[]']) && is_array($value)) {
            return array_map(static fn (mixed $item) => self::object($item, $objects['[]']), $value);
        }
        if (!is_array($value)) {
            return self::value($value);
        }
        $members = [];
        foreach ($value as $name => $member) {
            $inner = $objects[$name] ?? $objects['{}'] ?? null;
            $members[$name] = $inner === null ? self::value($member) : self::object($member, $inner);
        }
        return (object) $members;
    }

    private static function value(mixed $value): mixed
    {
        if ($value instanceof \DateTimeInterface) {
            return self::time($value);
        }
        if ($value instanceof \stdClass) {
            return (object) array_map(self::value(...), (array) $value);
        }
        return is_array($value) ? array_map(self::value(...), $value) : $value;
    }

    /**
     * @return array<string, mixed>
     */
    public static function toArray(\stdClass $json): array
    {
        return array_map(self::plain(...), (array) $json);
    }

    private static function plain(mixed $value): mixed
    {
        if ($value instanceof \stdClass) {
            return self::toArray($value);
        }
        return is_array($value) ? array_map(self::plain(...), $value) : $value;
    }
}
