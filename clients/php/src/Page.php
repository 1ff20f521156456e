<?php

declare(strict_types=1);

namespace Kickstand;

use Kickstand\Exception\KickstandException;

/**
 * One page of a list. Iterating over it yields its records and the records of all later pages, which are
 * fetched one by one as the iteration reaches them.
 *
 * @template-covariant T of Record
 * @implements \IteratorAggregate<int, T>
 */
final class Page implements \IteratorAggregate
{
    /**
     * @internal
     * @param list<T> $data
     * @param \Closure(string): self<T> $fetch
     */
    public function __construct(
        /** @var list<T> The records of this page alone. */
        public readonly array $data,
        /** Whether there are pages after this one. */
        public readonly bool $hasMore,
        /** The cursor of the next page. */
        public readonly ?string $nextCursor,
        private readonly \Closure $fetch,
    ) {
    }

    /**
     * Fetches the next page, with the same filters. The last page has none.
     *
     * @return self<T>|null
     */
    public function nextPage(): ?self
    {
        if (!$this->hasMore) {
            return null;
        }
        if ($this->nextCursor === null || $this->nextCursor === '') {
            throw new KickstandException('The list has more records, but no new cursor.');
        }
        return ($this->fetch)($this->nextCursor);
    }

    /** @return \Generator<int, T> */
    public function getIterator(): \Generator
    {
        $cursor = null; // of the page
        for ($page = $this; $page !== null; $page = $page->nextPage()) {
            foreach ($page->data as $record) {
                yield $record;
            }
            if ($page->hasMore && $page->nextCursor === $cursor && $cursor !== null) {
                throw new KickstandException('The list has more records, but no new cursor.');
            }
            $cursor = $page->nextCursor;
        }
    }
}
