<?php

declare(strict_types=1);

namespace Kickstand;

/** Options of one call. */
final class RequestOptions
{
    /** @var (\Closure(ResponseInfo): void)|null */
    public readonly ?\Closure $onResponse;

    /**
     * @param (callable(ResponseInfo): void)|null $onResponse called with each answer, also with one
     *                                                        that leads to a retry
     */
    public function __construct(
        /** The key under which a write happens once; by default a new one for each call. */
        public readonly ?string $idempotencyKey = null,
        /** The ETag that the record must still have; otherwise the answer is 412. */
        public readonly ?string $ifMatch = null,
        /** The ETag of a record that is known; the call returns null while the record still has it. */
        public readonly ?string $ifNoneMatch = null,
        /** The id of the subaccount, for a fleet's key that reaches several. */
        public readonly ?string $subaccount = null,
        /** An id for the server's log, up to 64 characters of `A-Za-z0-9._-`. */
        public readonly ?string $requestId = null,
        /** Seconds per attempt; for an export, an import or a file, per pause in it. */
        public readonly ?float $timeout = null,
        public readonly ?int $maxRetries = null,
        ?callable $onResponse = null,
    ) {
        if ($timeout !== null && $timeout <= 0 || $maxRetries !== null && $maxRetries < 0) {
            throw new \InvalidArgumentException('The timeout must be positive, and maxRetries not negative.');
        }
        $this->onResponse = $onResponse === null ? null : $onResponse(...);
    }

    /** @internal */
    public function withIfMatch(?string $ifMatch): self
    {
        return new self(
            $this->idempotencyKey,
            $ifMatch,
            null,
            $this->subaccount,
            $this->requestId,
            $this->timeout,
            $this->maxRetries,
            $this->onResponse,
        );
    }
}
