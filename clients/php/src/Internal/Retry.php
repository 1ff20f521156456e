<?php

declare(strict_types=1);

namespace Kickstand\Internal;

use Kickstand\Exception\ConnectionException;
use Kickstand\Exception\KickstandException;
use Kickstand\Exception\ProblemException;
use Kickstand\Timing;

/**
 * Decides whether one call is attempted again, and when.
 *
 * @internal
 */
final class Retry
{
    private const FIRST_WAIT = 0.5; // seconds
    private const LONGEST_WAIT = 8.0;
    private const STATUSES = [408, 429, 500, 502, 503, 504];

    private int $retries = 0;

    public function __construct(
        private readonly Timing $timing,
        private readonly int $maxRetries,
        private readonly float $maxWait,
    ) {
    }

    /** Waits until the next attempt, or throws the error if there is none. */
    public function wait(KickstandException $error): void
    {
        if ($this->retries >= $this->maxRetries || !self::isTemporary($error)) {
            throw $error;
        }
        $backoff = min(self::LONGEST_WAIT, self::FIRST_WAIT * 2 ** $this->retries);
        $this->retries++;
        $random = ($this->timing->random)();
        $asked = $error instanceof ProblemException ? $error->retryAfter : null;
        if ($asked === null) {
            ($this->timing->sleep)($backoff / 2 + $random * $backoff / 2);
            return;
        }
        if ($asked > $this->maxWait) {
            throw $error;
        }
        ($this->timing->sleep)($asked + $random * min(1.0, $backoff));
    }

    private static function isTemporary(KickstandException $error): bool
    {
        if ($error instanceof ProblemException) {
            return in_array($error->status, self::STATUSES, true)
                || $error->status === 409 && $error->problemCode === 'idempotency_in_progress';
        }
        return $error instanceof ConnectionException;
    }

    /** The seconds of a Retry-After header, or null if it has none. */
    public static function after(?string $header, float $now): ?float
    {
        if ($header === null) {
            return null;
        }
        if (preg_match('/^\d+$/D', $header) === 1) {
            return (float) $header;
        }
        $time = \DateTimeImmutable::createFromFormat('!???, d M Y H:i:s \G\M\T', $header, new \DateTimeZone('UTC'));
        return $time === false ? null : max(0.0, $time->getTimestamp() - $now);
    }
}
