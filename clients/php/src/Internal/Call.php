<?php

declare(strict_types=1);

namespace Kickstand\Internal;

use Kickstand\RequestOptions;

/**
 * One call of an operation, for all of its attempts.
 *
 * @internal
 */
final class Call
{
    public readonly string $url; // after the API's prefix

    /** @var array<string, string> */
    public readonly array $headers;

    /**
     * @param array<string, string> $ids by the name in the path
     * @param array<string, mixed> $query by the name on the wire; null values are not sent
     * @param string|iterable<string>|null $body
     */
    public function __construct(
        public readonly string $method,
        string $path,
        array $ids,
        array $query,
        public readonly RequestOptions $options,
        public readonly string|iterable|null $body = null,
        string $contentType = 'application/json',
        string $accept = 'application/json',
        public readonly bool $stream = false,
    ) {
        $this->url = self::path($path, $ids) . self::query($query);
        $headers = [
            'accept' => $accept,
            'user-agent' => 'kickstand-php/' . Connection::VERSION,
            'idempotency-key' => $method === 'GET' ? null : $options->idempotencyKey ?? self::uuid(),
            'if-match' => $options->ifMatch,
            'if-none-match' => $options->ifNoneMatch,
            'x-subaccount-id' => $options->subaccount,
            'x-request-id' => $options->requestId,
            'content-type' => $body === null ? null : $contentType,
        ];
        $this->headers = array_filter($headers, static fn (?string $value): bool => $value !== null);
        foreach ($this->headers as $name => $value) {
            if (trim($value) === '' || preg_match('/[\x00-\x1f\x7f]/', $value) === 1) {
                throw new \InvalidArgumentException("The header $name is empty, or has a control character.");
            }
        }
    }

    /** @param array<string, string> $ids */
    private static function path(string $path, array $ids): string
    {
        foreach ($ids as $name => $id) {
            if (in_array($id, ['', '.', '..'], true)) {
                throw new \InvalidArgumentException("The $name is empty, or no id.");
            }
            $path = str_replace('{' . $name . '}', rawurlencode($id), $path);
        }
        return $path;
    }

    /** @param array<string, mixed> $query */
    private static function query(array $query): string
    {
        $pairs = [];
        foreach ($query as $name => $value) {
            if (str_ends_with($name, '[]')) {
                foreach ($value ?? [] as $item) {
                    $pairs[] = rawurlencode($name) . '=' . rawurlencode($item);
                }
            } elseif ($value !== null) {
                $pairs[] = rawurlencode($name) . '=' . rawurlencode(self::parameter($name, $value));
            }
        }
        return $pairs === [] ? '' : '?' . implode('&', $pairs);
    }

    private static function parameter(string $name, mixed $value): string
    {
        if (!is_array($value)) {
            return Json::parameter($value);
        }
        $items = array_map(Json::parameter(...), $value);
        foreach ($items as $item) {
            if (str_contains($item, ',')) {
                throw new \InvalidArgumentException("A value of $name has a comma, which separates values.");
            }
        }
        return implode(',', $items);
    }

    private static function uuid(): string
    {
        $bytes = random_bytes(16);
        $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x40);
        $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
        return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
    }
}
