"""A server in this process, for commands that are told one in place of a store."""

from __future__ import annotations

from redrive import Redrive
from redrive.client import AsyncClient
from redrive.clock import ThreadClock
from tests.client.asgi import AsgiConnection

SERVER = "http://localhost"


class OneCommand(AsgiConnection):
    """A connection to a server that has the store open for as long as one command runs."""

    def __init__(self, store: str) -> None:
        self._app = Redrive(store)
        super().__init__(self._app.asgi(login=False))

    async def close(self) -> None:
        await self._app.close()


def client_of(store: str) -> AsyncClient:
    """Return what a command gets that is told the address of a server before that store."""
    return AsyncClient(SERVER, connection=OneCommand(store), clock=ThreadClock(), patience="0s")
