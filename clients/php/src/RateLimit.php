<?php

declare(strict_types=1);

namespace Kickstand;

/** The state of a key's rate limit. */
final class RateLimit
{
    public function __construct(
        /** Requests per window. */
        public readonly int $limit,
        /** Requests that are left in the window. */
        public readonly int $remaining,
        /** The end of the window. */
        public readonly \DateTimeImmutable $reset,
    ) {
    }
}
