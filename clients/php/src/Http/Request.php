<?php

declare(strict_types=1);

namespace Kickstand\Http;

use Kickstand\Internal\Key;

/** One attempt of a request. */
final class Request
{
    /**
     * @param array<string, string> $headers
     * @param string|iterable<string>|null $body
     * @internal
     */
    public function __construct(
        public readonly string $method,
        public readonly string $url,
        private readonly Key $key,
        private readonly array $headers,
        /** The body: all of it, its pieces, or none. */
        public readonly string|iterable|null $body,
        /** Seconds: for the whole attempt, or with $stream for each pause in it. */
        public readonly float $timeout,
        /** Whether the body of the request or of the answer may be long and slow. */
        public readonly bool $stream,
    ) {
    }

    /**
     * The headers to send, with lower-case names. Authorization, which contains the key, is one.
     *
     * @return array<string, string>
     */
    public function headers(): array
    {
        return ['authorization' => $this->key->authorization()] + $this->headers;
    }
}
