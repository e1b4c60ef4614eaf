"""A destination that has failed for long is paused by itself, and told of."""

from __future__ import annotations

import pytest

from redrive import Breaker, DestinationPaused, Redrive, Retry, http
from redrive.app.gateway.service import read_service
from redrive.errors import ConfigurationError
from tests.http.receiver import answer, receiving
from tests.waiting import eventually

DOWN = {"breaker": Breaker(failures=1, open_for="50ms"), "disable_after": "50ms"}


async def test_a_destination_that_fails_for_long_is_paused_and_told_of(store: str) -> None:
    told: list[DestinationPaused] = []
    app = Redrive(store, poll="50ms")
    app.on_pause(told.append)
    async with receiving() as receiver:
        receiver.always(answer(503))
        way = http(receiver.url, allow_private=True)
        app.destination("crm", "order.*", transport=way, retry=Retry(base="0s"), **DOWN)  # type: ignore[arg-type] # of several kinds
        async with app, app.worker():
            await app.publish("order.paid", {"order": 42})
            await eventually(lambda: bool(told), what="the destination is paused")
            [gate] = await app.operations.gates()
            entry = (await app.operations.audit())[0]

    assert (told[0].destination, gate.hold, gate.gate.pause) == ("crm", "paused", gate.gate.pause)
    assert "It has failed since " in told[0].why
    assert (entry.action, entry.by, entry.why) == ("pause", "redrive", told[0].why)


def test_a_service_says_how_long_it_may_fail() -> None:
    document = {"url": "https://api.example.com", "disable_after": "5d"}

    limits = read_service("crm", document).destination(1, ()).limits

    assert limits.disable_after is not None
    assert limits.disable_after.days == 5
    for wrong, advice in (("0s", "one failure would be enough"), ("5 dogs", "disable_after")):
        with pytest.raises(ConfigurationError, match=advice):
            read_service("crm", {**document, "disable_after": wrong})
    with pytest.raises(ConfigurationError, match="needs a breaker"):
        read_service("crm", {**document, "breaker": False})
