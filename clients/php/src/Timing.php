<?php

declare(strict_types=1);

namespace Kickstand;

/** The clock, the waits and the chance of retries. Tests replace them. */
final class Timing
{
    /** @var \Closure(float): void waits for a number of seconds */
    public readonly \Closure $sleep;

    /** @var \Closure(): float returns a number of at least 0 and below 1 */
    public readonly \Closure $random;

    /** @var \Closure(): float returns the Unix time */
    public readonly \Closure $now;

    /**
     * @param (callable(float): void)|null $sleep
     * @param (callable(): float)|null $random
     * @param (callable(): float)|null $now
     */
    public function __construct(?callable $sleep = null, ?callable $random = null, ?callable $now = null)
    {
        $this->sleep = ($sleep ?? static fn (float $seconds) => usleep((int) round($seconds * 1e6)))(...);
        $this->random = ($random ?? static fn (): float => random_int(0, (1 << 53) - 1) / (1 << 53))(...);
        $this->now = ($now ?? static fn (): float => microtime(true))(...);
    }
}
