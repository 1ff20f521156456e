<?php

declare(strict_types=1);

namespace Kickstand\Http;

/** The answer to one attempt. */
final class Response
{
    /** @var array<string, string> by lower-case name */
    public readonly array $headers;

    /**
     * @param array<string, string> $headers of any case
     * @param iterable<string> $body the pieces of the body, decoded, as they arrive
     */
    public function __construct(
        public readonly int $status,
        array $headers,
        public readonly iterable $body,
    ) {
        $this->headers = array_change_key_case($headers);
    }
}
