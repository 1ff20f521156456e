<?php

declare(strict_types=1);

namespace Kickstand;

use Kickstand\Http\Response;

/** An answer without its body, as {@see RequestOptions::$onResponse} gets it. */
final class ResponseInfo
{
    /** The version of the record, for If-Match and If-None-Match. */
    public readonly ?string $etag;

    public readonly ?string $requestId;

    /** Whether this is the answer to an earlier request with the same idempotency key. */
    public readonly bool $replayed;

    public readonly ?RateLimit $rateLimit;

    /** @param array<string, string> $headers */
    private function __construct(
        public readonly int $status,
        /** By lower-case name. */
        public readonly array $headers,
    ) {
        $this->etag = $headers['etag'] ?? null;
        $this->requestId = $headers['x-request-id'] ?? null;
        $this->replayed = ($headers['idempotent-replayed'] ?? '') === 'true';
        $this->rateLimit = self::rateLimit($headers);
    }

    /** @internal */
    public static function of(Response $response): self
    {
        return new self($response->status, $response->headers);
    }

    /** @param array<string, string> $headers */
    private static function rateLimit(array $headers): ?RateLimit
    {
        $values = [];
        foreach (['limit', 'remaining', 'reset'] as $name) {
            $value = filter_var($headers["x-ratelimit-$name"] ?? null, FILTER_VALIDATE_INT);
            if ($value === false) {
                return null;
            }
            $values[] = $value;
        }
        return new RateLimit($values[0], $values[1], new \DateTimeImmutable("@{$values[2]}"));
    }
}
