"""The venue: where the shop's own table and its store are while the story is told."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol

from redrive.app.redrive import Redrive

__all__ = ["Venue"]


class Venue(Protocol):
    """Exists from entering to leaving; nothing of it is left then, however the story ended."""

    @property
    def store(self) -> str:
        """The URL of the store, for the workers."""

    @property
    def exports(self) -> tuple[str, ...]:
        """What to type first in another terminal; a password is not shown."""

    @property
    def place(self) -> str:
        """What lies between the shop and its services, to be said in a sentence."""

    @property
    def remains(self) -> str:
        """What becomes of it when the story is over or broken off."""

    @property
    def poll(self) -> str:
        """How often workers look for orders of which nobody told them."""

    @property
    def takings(self) -> str:
        """The name of the table of the read model, beside the shop's own."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def furnish(self, app: Redrive) -> None:
        """Create the shop's own table, beside the events."""

    def sale(self, app: Redrive, number: int, total: float) -> AbstractAsyncContextManager[object]:
        """Write an order in a transaction, and lend it for `within=`; an error undoes all of it."""

    async def orders_written(self, app: Redrive) -> int:
        """Count the orders in the shop's table."""

    async def takings_read(self, app: Redrive) -> int:
        """Return what the read model says was taken, as readers see it."""
