"""A NUL character, which PostgreSQL cannot keep in text, stops nothing wherever it turns up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from redrive import Cancel, ConfigurationError, Event, Query, Redrive, Retry, Terminal
from redrive.model.delivery import Leased
from redrive.model.outcome import Exchange, Fault, Faulted, Nature, Outcome
from redrive.testing import Kit

ODD = "a\x00b"
ONCE = Retry(max_attempts=1)


class Odd:
    """A transport of somebody's own, which says what it likes."""

    batch = 1

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        fault = Fault(error_class=ODD, message=ODD, rule=ODD, code=ODD, stack=ODD)
        exchange = Exchange(
            method="POST",
            url=f"https://example.com/{ODD}",
            headers={"x": ODD},
            size=3,
            status=500,
            reason=ODD,
            answer_headers={ODD: ODD},
            body=ODD,
        )
        return [
            Faulted(fault=fault, nature=Nature.TERMINAL, exchange=exchange, pause=ODD)
            for _ in deliveries
        ]


@pytest.mark.parametrize("raised", [ValueError(ODD), Terminal(ODD), Cancel(ODD)], ids=repr)
async def test_a_failure_that_names_one_is_kept(store: str, raised: object) -> None:
    app = Redrive("memory://")

    @app.handler("order.*", retry=ONCE)
    async def bill(_: Event[object]) -> object:
        if isinstance(raised, Exception):
            raise raised
        return raised

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", {"name": ODD, ODD: [ODD]})
        await kit.drain()

        [letter] = kit.dead_letters()
        assert letter.fault is not None
        assert letter.fault.message == "a\N{REPLACEMENT CHARACTER}b"


async def test_whatever_a_transport_says_is_kept(store: str) -> None:
    app = Redrive("memory://")
    app.destination("odd", "order.*", transport=Odd(), retry=ONCE)
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", ODD)
        await kit.drain()

        [letter] = kit.dead_letters()
        shown = await app.operations.show(letter.id)
        assert shown.delivery.status == "failed"
        [gate] = await app.operations.gates()
        assert gate.gate.pause is not None


async def test_a_payload_with_one_is_edited_replayed_and_delivered(store: str) -> None:
    app = Redrive("memory://")
    received: list[object] = []
    is_mended = False

    @app.handler("order.*", retry=ONCE)
    async def bill(event: Event[object]) -> None:
        if not is_mended:
            raise ValueError(event.payload)
        received.append(event.payload)

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", {"name": ODD, "kept": ODD})
        await kit.drain()
        [letter] = kit.dead_letters()
        is_mended = True

        await app.operations.edit(
            letter.id, {"name": f"{ODD}!", "kept": ODD}, by="ada", why="fixed"
        )
        await kit.drain()

        assert received == [{"name": f"{ODD}!", "kept": ODD}]
        shown = await app.operations.show(letter.id)
        assert len(shown.delivery.edits) == 1


@pytest.mark.parametrize(
    "name",
    ["destination", "event_type", "event_id", "key", "tenant", "error_class", "group", "text"],
)
def test_a_search_for_one_is_refused_whatever_the_store(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is 'a.x00b'; it is text .*without a NUL"):
        Query(**{name: ODD})  # type: ignore[arg-type]
