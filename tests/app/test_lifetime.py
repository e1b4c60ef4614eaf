"""Lifetimes: who opens the store, who closes it, and what a fork or an ended loop leaves."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import msgspec
import pytest

from redrive import (
    Event,
    Operations,
    Redrive,
    StoreError,
    StoreUnavailableError,
    TransactionError,
)
from tests.waiting import PATIENCE_SECONDS


async def enter_the_app(app: Redrive) -> None:
    async with app:
        await app.publish("order.noted")


async def close_the_app(app: Redrive) -> None:
    await app.close()
    await app.close()


@pytest.fixture
def store_threads() -> Callable[[], list[str]]:
    """The threads of stores that were opened during the test and are still open."""
    before = set(threading.enumerate())
    names = ("redrive-writer", "redrive-reader")
    return lambda: [one.name for one in set(threading.enumerate()) - before if one.name in names]


async def test_a_store_that_cannot_take_the_destinations_is_closed_again(
    sqlite: str, store_threads: Callable[[], list[str]]
) -> None:
    """Somebody who tries again and again must not gather threads and connections."""
    app = Redrive(sqlite)

    @app.handler("order.*", name="billing")
    async def bill(event: Event[int]) -> None:
        raise NotImplementedError

    async with app:
        await app.publish("order.paid", 1)
    with apsw.Connection(sqlite.removeprefix("sqlite:///")) as connection:
        connection.execute(
            "CREATE TRIGGER refusing BEFORE INSERT ON redrive_destinations "
            "BEGIN SELECT raise(ABORT, 'not now'); END"
        )
    other = Redrive(sqlite)

    @other.handler("order.*", name="mailing")
    async def mail(event: Event[int]) -> None:
        raise NotImplementedError

    with pytest.raises(StoreError, match="not now"):
        await other.publish("order.paid", 2)

    assert store_threads() == []


@pytest.mark.parametrize("meddle", [enter_the_app, close_the_app])
async def test_a_handler_cannot_close_the_store_of_the_worker_that_runs_it(
    sqlite: str,
    meddle: Callable[[Redrive], Awaitable[None]],
    store_threads: Callable[[], list[str]],
) -> None:
    app = Redrive(sqlite)
    seen: list[object] = []
    is_done = asyncio.Event()

    @app.handler("order.paid")
    async def bill(event: Event[int]) -> None:
        await meddle(app)
        seen.append(event.payload)
        if event.payload == 1:
            await app.publish("order.paid", 2)
        else:
            is_done.set()

    async with app, app.worker():
        await app.publish("order.paid", 1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await is_done.wait()

    assert seen == [1, 2]
    assert store_threads() == []


async def test_an_inner_block_leaves_the_store_to_the_outer_one(
    sqlite: str, store_threads: Callable[[], list[str]]
) -> None:
    app = Redrive(sqlite)

    async with app:
        before = set(threading.enumerate())
        async with app:
            await app.publish("order.paid")

        assert before <= set(threading.enumerate())
    assert store_threads() == []


async def test_a_drain_in_an_app_without_a_block_outlives_a_close_in_its_handler(
    sqlite: str, store_threads: Callable[[], list[str]]
) -> None:
    app = Redrive(sqlite)

    @app.handler("order.paid")
    async def bill(event: object) -> None:
        await app.close()

    await app.publish("order.paid")
    async with asyncio.timeout(PATIENCE_SECONDS):
        tally = await app.drain()

    assert tally.delivered == 1
    assert store_threads() == []


async def test_a_worker_made_before_a_close_opens_the_store_again(
    sqlite: str, store_threads: Callable[[], list[str]]
) -> None:
    app = Redrive(sqlite)
    app.handler("order.paid", name="billing")(lambda event: None)
    await app.publish("order.paid")
    worker = await app.make_worker()

    await app.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        tally = await worker.run(until_idle=True)

    assert tally.delivered == 1
    assert store_threads() == []


async def test_closing_inside_the_block_lets_later_calls_open_it_again(
    sqlite: str, store_threads: Callable[[], list[str]]
) -> None:
    app = Redrive(sqlite)

    async with app:
        await app.close()
        assert store_threads() == []
        await app.publish("order.paid")

    assert store_threads() == []


def test_loops_that_ended_leave_no_threads_behind(
    sqlite: str, store_threads: Callable[[], list[str]]
) -> None:
    app = Redrive(sqlite)

    for _ in range(5):
        asyncio.run(publish(app))

    assert len(store_threads()) <= 3
    asyncio.run(enter_the_app(app))
    assert store_threads() == []


def test_each_loop_publishes_anew_though_none_was_closed(
    store: str,
) -> None:
    app = Redrive(store)

    with warnings.catch_warnings():
        # Python says that nobody closed them, at whatever moment it collects them: now.
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            asyncio.run(publish(app))
        asyncio.run(enter_the_app(app))
        gc.collect()


async def publish(app: Redrive) -> None:
    await app.publish("order.paid")


def test_after_a_fork_the_child_publishes_on_its_own(sqlite: str) -> None:
    script = """
import os, sys
from redrive import Redrive

app = Redrive(sys.argv[1])
app.sync.publish("parent.first")
told, tell = os.pipe()
heard, go_on = os.pipe()
app.sync._lock.acquire()  # as another thread may, in that instant
child = os.fork()
if child == 0:
    os.close(go_on)
    app.sync.publish("child.first")
    os.write(tell, b".")
    os.read(heard, 1)
    app.sync.publish("child.second")
    app.sync.close()
    os._exit(0)
app.sync._lock.release()
os.read(told, 1)
app.sync.publish("parent.second")
app.sync.close()
assert os.path.exists(sys.argv[2] + "-wal"), "the log was removed from under the child"
os.write(go_on, b".")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    path = sqlite.removeprefix("sqlite:///")

    ended = subprocess.run(
        [sys.executable, "-c", script, sqlite, path],
        timeout=30,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    app = Redrive(sqlite)
    events = [one.event.type for one in app.sync.operate(Operations.events)]
    app.sync.close()
    assert events == ["parent.first", "child.first", "parent.second", "child.second"]


def test_children_forked_while_other_threads_write_can_write_too(sqlite: str) -> None:
    """A fork copies the locks that other threads hold in that moment, and not those threads."""
    script = """
import os, sys, threading
from redrive import Redrive

app = Redrive(sys.argv[1])
app.sync.publish("parent.first")
over = threading.Event()

def publish():
    while not over.is_set():
        app.sync.publish("parent.more")

def transact():
    while not over.is_set():
        with app.sync.transaction() as transaction:
            app.sync.publish("parent.within", within=transaction)

threads = [threading.Thread(target=one) for one in (publish, transact)]
for one in threads:
    one.start()
codes = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        try:
            app.sync.publish("child.only")
        except BaseException as error:
            os.write(2, str(error).encode())
            os._exit(1)
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
for one in threads:
    one.join()
app.sync.close()
sys.exit(f"{codes}" if any(codes) else 0)
"""

    ended = subprocess.run(
        [sys.executable, "-c", script, sqlite],
        timeout=PATIENCE_SECONDS,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    app = Redrive(sqlite)
    events = [one.event.type for one in app.sync.operate(Operations.events, limit=100_000)]
    app.sync.close()
    assert events.count("child.only") == 20


def test_a_child_forked_inside_a_transaction_is_told_that_it_cannot_write(sqlite: str) -> None:
    script = """
import os, sys
from redrive import Redrive, StoreUnavailableError

app = Redrive(sys.argv[1])
with app.sync.transaction() as transaction:
    app.sync.publish("parent.first", within=transaction)
    child = os.fork()
    if child == 0:
        other = Redrive(sys.argv[1])
        try:
            other.sync.publish("child.first")
        except StoreUnavailableError as error:
            os._exit(0 if "forked while its parent had a transaction" in str(error) else 1)
        os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
app.sync.close()
sys.exit(code)
"""

    ended = subprocess.run(
        [sys.executable, "-c", script, sqlite],
        timeout=PATIENCE_SECONDS,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_publish_into_a_file_that_was_removed_is_refused(sqlite: str) -> None:
    """It would be acknowledged, and lie in a file that nobody can ever open again."""
    path = Path(sqlite.removeprefix("sqlite:///"))
    app = Redrive(sqlite)
    app.sync.publish("order.paid", 1)
    path.rename(path.with_name("elsewhere.db"))

    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="removed or replaced"):
            app.sync.publish("order.paid", 2)
    with pytest.raises(StoreUnavailableError, match="removed or replaced"), app.sync.transaction():
        pass
    assert not path.exists()

    path.with_name("elsewhere.db").rename(path)
    app.sync.publish("order.paid", 3)
    events = app.sync.operate(Operations.events)
    app.sync.close()
    assert [one.event.payload for one in events] == [msgspec.Raw(b"1"), msgspec.Raw(b"3")]


async def test_inside_a_transaction_what_would_wait_for_it_is_refused_at_once(sqlite: str) -> None:
    app = Redrive(sqlite)
    app.handler("order.paid", name="billing")(lambda event: None)
    operations = app.operations

    async with app, app.transaction(), asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(TransactionError, match="open another one after the block"):
            async with app.transaction():
                pass
        with pytest.raises(TransactionError, match="run a worker after the block"):
            await app.drain()
        with pytest.raises(TransactionError, match="run a worker after the block"):
            async with app.worker():
                pass
        for act in (
            operations.replay([1], by="ada"),
            operations.delete([1], by="ada", why="test"),
            operations.pause("billing", by="ada"),
            operations.reset_breaker("billing", by="ada"),
        ):
            with pytest.raises(TransactionError, match="do this after the block"):
                await act
        assert not await operations.events()


def test_the_synchronous_door_refuses_a_nested_transaction_at_once(sqlite: str) -> None:
    app = Redrive(sqlite)

    with (
        app.sync.transaction(),
        pytest.raises(TransactionError, match="open another one after the block"),
        app.sync.transaction(),
    ):
        pass

    with app.sync.transaction() as transaction:
        assert transaction.is_open
    app.sync.close()
