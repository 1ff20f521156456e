"""Lists of records, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from ._errors import KickstandError
from ._records import Record, decode

R = TypeVar("R", bound=Record)


class Page(Generic[R]):
    """One page of a list. Iterating over it continues with all later pages.

    Attributes:
        data: The records of this page.
        has_more: Whether there is a later page.
        next_cursor: The cursor of the next page, or None.
    """

    def __init__(
        self,
        of: type[R],
        raw: dict[str, Any],
        cursor: str | None,
        fetch: Callable[[str], Page[R]],
    ) -> None:
        records = raw.get("data")
        if not isinstance(records, list):
            raise KickstandError("The answer is not a list.")
        self.data: list[R] = [decode(of, record) for record in records]
        self.has_more: bool = raw.get("has_more") is True
        self.next_cursor: str | None = raw.get("next_cursor")
        self._cursor = cursor
        self._fetch = fetch

    def __repr__(self) -> str:
        return f"Page({len(self.data)} records, has_more={self.has_more})"

    def next_page(self) -> Page[R] | None:
        """Return the next page with the same filters, or None after the last one."""
        if not self.has_more:
            return None
        if not self.next_cursor or self.next_cursor == self._cursor:
            raise KickstandError("The list has more records, but no new cursor.")
        return self._fetch(self.next_cursor)

    def __iter__(self) -> Iterator[R]:
        page: Page[R] | None = self
        while page is not None:
            yield from page.data
            page = page.next_page()
