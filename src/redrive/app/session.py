"""Sessions: what an app has open on one event loop, and who still needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from redrive.calling.caller import Caller
from redrive.pipeline.publish import Publisher
from redrive.pipeline.settle import Tally
from redrive.store import Store
from redrive.worker import Worker

__all__ = ["Session", "SessionWorker", "Sessions"]


class Session:
    """An open store and its publisher; the store closes when nobody holds it any more.

    Each block and each running worker holds it. Whoever opened it without a block keeps it, once,
    until `app.close()`.
    """

    def __init__(
        self, store: Store, publisher: Publisher, *, before_closing: Callable[[], Awaitable[None]]
    ) -> None:
        self.store = store
        self.publisher = publisher
        self.caller: Caller | None = None
        self.blocks = 0
        self.is_kept = False
        self._workers = 0
        self._before_closing = before_closing

    @property
    def is_needed(self) -> bool:
        """Whether anybody holds or keeps it."""
        return self.is_kept or self.blocks > 0 or self._workers > 0

    async def leave_block(self) -> None:
        """Let go of what a block holds; of what is kept, if its hold was let go inside it."""
        if self.blocks:
            self.blocks -= 1
        else:
            self.is_kept = False
        await self._close_if_unneeded()

    async def let_go(self) -> None:
        """Let go of what is kept; of a block's hold, if nothing is."""
        if self.is_kept:
            self.is_kept = False
        elif self.blocks:
            self.blocks -= 1
        await self._close_if_unneeded()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Hold it while a worker runs, opened again if it was closed before that."""
        self._workers += 1
        try:
            await self.store.open()
            yield
        finally:
            self._workers -= 1
            await self._close_if_unneeded()

    async def _close_if_unneeded(self) -> None:
        if not self.is_needed:
            await self._before_closing()
            if self.caller is not None:
                await self.caller.close()
            await self.store.close()


class Sessions:
    """The sessions of an app, one per event loop.

    `open_store` gives an open store that knows the app's destinations.
    """

    def __init__(
        self,
        *,
        open_store: Callable[[], Awaitable[Store]],
        make_publisher: Callable[[Store], Publisher],
        before_closing: Callable[[], Awaitable[None]],
    ) -> None:
        self._open_store = open_store
        self._make_publisher = make_publisher
        self._before_closing = before_closing
        self._of_loop: dict[asyncio.AbstractEventLoop, Session] = {}

    def current(self) -> Session | None:
        """Return what the running loop holds."""
        return self._of_loop.get(asyncio.get_running_loop())

    async def get(self, *, is_kept: bool = True) -> Session:
        """Return what the running loop holds; what this call opens is kept until `close`."""
        session = self.current()
        while session is None:
            await self._close_orphans()
            store = await self._open_store()
            session = self.current()
            if session is None:
                session = self._begin(store)
                session.is_kept = is_kept
            else:  # another task was quicker
                await store.close()
                session = self.current()
        return session

    def _begin(self, store: Store) -> Session:
        loop = asyncio.get_running_loop()

        async def forget() -> None:
            if self._of_loop.get(loop) is session:
                del self._of_loop[loop]
            await self._before_closing()

        session = Session(store, self._make_publisher(store), before_closing=forget)
        self._of_loop[loop] = session
        return session

    async def _close_orphans(self) -> None:
        """Close what loops that have ended left open, as each `asyncio.run` may."""
        for loop in list(self._of_loop):
            orphan = self._of_loop.pop(loop, None) if loop.is_closed() else None
            if orphan is not None:
                await orphan.store.close()


class SessionWorker(Worker):
    """A worker that holds its session while it runs."""

    session: Session

    async def run(self, *, until_idle: bool = False) -> Tally:
        """Work until stopped; with `until_idle`, until nothing more is due now."""
        async with self.session.working():
            return await super().run(until_idle=until_idle)
