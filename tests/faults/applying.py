"""Applies a file again and again, and kills itself at one statement later each time.

Each try is a process of its own, forked off this one before anything runs in it. Afterwards the
store has all of the file or nothing of it. Prints how many tries were killed, and how many of them
had changed something.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from redrive import Redrive
from redrive.operations import GatewayDocument
from redrive.stores.sql.services import ServicesRole
from redrive.stores.sqlite.session import SqliteSession

_MOST = 200


def wanted(number: int) -> GatewayDocument:
    """Return services, rules and schedules of which every one is another each time."""
    names = [f"{kind}-{number}" for kind in ("crm", "erp")]
    rule = {"event": "order.*", "template": {"try": number}}
    return GatewayDocument(
        services={one: {"url": f"https://{one}.example.com/{number}"} for one in names},
        rules={f"to-{one}": {"service": one, **rule} for one in names},
        schedules={f"tick-{number}": {"event": "order.due", "every": "1h", "payload": number}},
    )


async def _apply(store: str, number: int) -> None:
    async with Redrive(store) as app:
        await app.operations.apply_gateway(wanted(number), by="test", leave_waiting=True)


async def _kept(store: str) -> GatewayDocument:
    async with Redrive(store) as app:
        assert await app.operations.recount() == []
        exported = await app.operations.export_gateway()
        standing = [one.name for one in await app.operations.schedules()]
        assert standing == list(exported.schedules)
        return exported


def _die_at(statement: int) -> None:
    """Have this process kill itself at a statement of the change, or just after its commit."""
    fetch, change = SqliteSession.fetch, ServicesRole.change_gateway
    left, is_changing = [statement], [False]

    def count() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async def fetching(self: Any, sql: Any, *given: Any) -> Any:  # noqa: ANN401 - as theirs
        if is_changing[0]:
            count()
        return await fetch(self, sql, *given)

    async def changing(self: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
        is_changing[0] = True
        revision = await change(self, *given, **named)
        is_changing[0] = False
        count()
        return revision

    SqliteSession.fetch = fetching  # type: ignore[method-assign, assignment]
    ServicesRole.change_gateway = changing  # type: ignore[method-assign]


def main(store: str) -> None:
    """Try until one try comes through, which has met every statement."""
    asyncio.run(_apply(store, 0))
    before, killed, changed = wanted(0), 0, 0
    for number in range(1, _MOST):
        child = os.fork()
        if child == 0:
            _die_at(number - 1)
            asyncio.run(_apply(store, number))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = asyncio.run(_kept(store))
        assert found in (before, wanted(number)), (number, found)
        if not os.WIFSIGNALED(status):
            assert (status, found) == (0, wanted(number))
            print(killed, changed)  # noqa: T201 - it is what the test reads
            return
        killed, changed = killed + 1, changed + (found != before)
        before = found
    raise AssertionError("no try came through")


if __name__ == "__main__":
    main(sys.argv[1])
