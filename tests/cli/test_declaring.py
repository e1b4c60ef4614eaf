"""Which declaration of a destination is in force, from the command line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from redrive import Redrive
from redrive.model.destination import Order
from tests.cli.shell import Shell, Shop
from tests.waiting import PATIENCE_SECONDS, until


def said(text: str) -> str:
    return " ".join(text.split())


def release(shop: Shop, *, order: Order = Order.NONE) -> Redrive:
    """Return an app of some release: it declares `billing`, in this order."""
    app = Redrive(shop.url, poll="100ms")
    app.handler("order.*", name="billing", order=order)(lambda _: None)
    return app


@contextmanager
def at_work(app: Redrive) -> Iterator[str]:
    """Run a worker beside the block, and give its id."""
    begun, ids = threading.Event(), list[str]()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def work() -> None:
        async with app, app.worker() as worker:
            ids.append(worker.id)
            begun.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    try:
        assert begun.wait(PATIENCE_SECONDS)
        yield ids[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def wait_for(shell: Shell, command: str, words: str) -> None:
    until(lambda: words in said(shell(command).out), what=f"{command} says: {words}")


def is_served(shell: Shell, name: str) -> bool:
    workers = shell("status", "--json").json["workers"]
    served = [one["serving"]["destinations"] for one in workers if one["serving"]]
    return any(name in destinations for destinations in served)


def test_what_was_removed_is_restored(shell: Shell, shop: Shop) -> None:
    never = shell("destination", "restore", "billing")
    shell("destination", "remove", "billing", "--why", "a mistake")
    missed = shell("publish", "order.paid")

    answer = shell("destination", "restore", "billing", "--why", "it was one", "--by", "ann")
    again = shell("destination", "restore", "billing", "--json")
    unknown = shell("destination", "restore", "biling")

    assert (never.code, never.out) == (1, "billing was not removed.\n")
    assert missed.err.startswith("redrive: no destination wants")
    assert answer.code == 0
    assert said(answer.out) == (
        "Restored billing. What was published meanwhile it gets by "
        "`redrive destination backfill billing`."
    )
    assert (again.code, again.json) == (1, {"changed": [], "unchanged": ["billing"]})
    assert (unknown.code, "did you mean 'billing'?" in unknown.err) == (2, True)
    assert shell("publish", "order.paid", "--json").json["destinations"] == ["billing"]
    assert "ann restore billing it was one" in said(shell("audit").out)


def test_what_workers_serve_is_removed_only_if_one_insists(shell: Shell, shop: Shop) -> None:
    arguments = ("destination", "remove", "billing", "--why", "retired")
    with at_work(release(shop)):
        until(lambda: is_served(shell, "billing"), what="a worker serves billing")
        alone = shell(*arguments)
        still_there = shell("publish", "order.paid", "--json").json["destinations"]

        answer = shell(*arguments, "--yes")

        assert "1 live worker serves billing. Remove it all the same?" in said(alone.err)
        assert still_there == ["billing"]
        assert (answer.code, answer.out.splitlines()[0]) == (0, "Removed billing.")
        advice = "which was removed and gets nothing. Take that back with: redrive destination"
        wait_for(shell, "doctor", f"{advice} restore billing")


def test_a_worker_that_declares_another_is_told_of(shell: Shell, shop: Shop) -> None:
    with at_work(release(shop)) as worker:
        with at_work(release(shop, order=Order.PARK)):
            words = f"Worker {worker} declares billing otherwise than is in force"
            wait_for(shell, "status", words)
            wait_for(shell, "doctor", words)
            assert "It passes when the deployment is over." in said(shell("doctor").out)
        until(
            lambda: "otherwise than is in force" not in said(shell("doctor").out),
            what="the worker that is left has its own in force",
        )
