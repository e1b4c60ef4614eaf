"""Erasing from the command line, and through a server within a tenant."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from redrive import Redrive
from redrive.cli import printing
from tests.cli.shell import Shell, Shop
from tests.web.client import Client


def test_what_is_erased_is_counted_first_and_asked_for(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1}, {"order": 2}, tenant="acme")

    planned = shell("erase", "--tenant", "acme", "--dry-run")
    unasked = shell("erase", "--tenant", "acme", "--why", "17")
    unreasoned = shell("erase", "--tenant", "acme", "--yes")

    assert "2 events would be erased, with 2 deliveries" in planned.out
    assert "2 are still to be delivered." in planned.out
    assert unasked.code == unreasoned.code == 2
    assert "say --yes" in unasked.err
    assert "A reason is needed" in unreasoned.err


def test_what_waits_is_left_or_failed_as_it_is_asked(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1}, tenant="acme")

    left = shell("erase", "--tenant", "acme", "--why", "17", "--yes", "--json")
    failed = shell(
        *("erase", "--tenant", "acme", "--why", "17", "--yes", "--json"),
        *("--waiting", "fail", "--with", "tenant"),
    )

    assert left.code == 1
    assert (left.json["erased"]["events"], left.json["erased"]["left"]) == (0, 1)
    assert failed.code == 0
    assert (failed.json["erased"]["events"], failed.json["erased"]["failed"]) == (1, 1)


def test_a_reason_that_repeats_what_is_erased_is_refused(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1}, tenant="acme")

    answer = shell("erase", "--tenant", "acme", "--with", "tenant", "--why", "acme left", "--yes")
    both = shell("erase", "--tenant", "acme", "--key", "k", "--why", "17", "--yes")
    wrong = shell("erase", "--tenant", "acme", "--with", "name", "--why", "17", "--yes")

    assert answer.code == both.code == wrong.code == 2
    assert "stands in who acts or why" in answer.err
    assert "name exactly one of them" in both.err
    assert "idempotency-key" in wrong.err


class Terminal(io.StringIO):
    """Where somebody watches."""

    def isatty(self) -> bool:
        return True


def test_who_watches_sees_how_far_the_log_was_looked_through(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish({"order": 1}, {"order": 2}, tenant="acme")
    terminal = Terminal()
    real = printing.progress

    @contextmanager
    def watched(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", terminal)
            with real(title, total) as advance:
                yield advance

    monkeypatch.setattr("redrive.cli.erasing.progress", watched)

    shell("erase", "--tenant", "acme", "--dry-run")

    assert "Looking through the log 2" in terminal.getvalue()


async def test_a_server_goes_through_the_log_step_by_step_within_a_tenant() -> None:
    async with Redrive("memory://") as app:
        await app.publish("order.paid", {"name": "Xanthippe"}, key="a", tenant="acme")
        kept = await app.publish("order.paid", {"name": "Socrates"}, key="a", tenant="other")
        token = await app.operations.create_token(
            "privacy", role="admin", tenant="acme", by="test", why="requests of acme"
        )
        viewer = await app.operations.create_token("v", role="operate", by="test", why="to act")
        asked = {"key": "a", "why": "request 17"}

        refused = await Client(app.asgi(), token=viewer.secret).post("/api/v1/erasures", asked)
        answer = await Client(app.asgi(), token=token.secret).post("/api/v1/erasures", asked)
        rest = {**asked, "after": answer.json["next"] or 99}
        last = await Client(app.asgi(), token=token.secret).post("/api/v1/erasures", rest)

        assert refused.status == 403
        assert (answer.json["events"], last.json["events"]) == (1, 0)
        found = await app.operations.show_event(kept.event_id)
        assert found.event.erased is None
