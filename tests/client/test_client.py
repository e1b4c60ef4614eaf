"""The client: everything of the API by typed calls, tried again where that does no harm."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator

import msgspec
import pytest

from redrive import (
    NewEvent,
    NotFoundError,
    ServerError,
    UsageError,
    VersionConflictError,
)
from redrive.client import AsyncClient, Client
from redrive.client.asynchronous import RemoteOperations
from redrive.client.connection import Address, AnswerLostError, Reply, Request
from redrive.errors import (
    ConfigurationError,
    DeniedError,
    EditConflictError,
    IdempotencyConflictError,
    ResultTimeoutError,
)
from redrive.model.audit import AuditQuery
from redrive.operations import Operations
from redrive.store import EventQuery, Figures, Query
from redrive.testing import FakeClock
from redrive.web.requests import MOST_AT_ONCE
from redrive.web.table import LEFT_OUT
from tests.client.asgi import AsgiConnection
from tests.web.conftest import Served

URL = "http://localhost"
NOBODYS = "rdt_nobody"


class EagerClock(FakeClock):
    """Lets time pass as soon as somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.advance(f"{seconds * 1000:.3f}ms")


def connected(
    served: Served, *trouble: str, token: str | None = None, patience: str = "30s"
) -> tuple[AsyncClient, AsgiConnection]:
    asgi = served.asgi if token else served.app.asgi(login=False)
    connection = AsgiConnection(asgi, *trouble)
    client = AsyncClient(
        URL, token=token, connection=connection, clock=EagerClock(), patience=patience
    )
    return client, connection


async def test_what_is_published_comes_back_as_receipts(served: Served) -> None:
    client, connection = connected(served)

    one = await client.publish("order.paid", {"order": 1}, key="k", due="5m", to="billing")
    many = await client.publish_many(
        [NewEvent(type="order.paid", payload=number) for number in range(2)]
    )

    assert (one.destinations, one.is_duplicate, one.version) == (("billing",), False, 1)
    assert len({one.event_id for one in many}) == 2
    told = await client.show_event(one.event_id)
    assert (told.event.key, msgspec.json.decode(told.event.payload)) == ("k", {"order": 1})
    assert len(connection.sent) == 3


async def test_a_publish_whose_answer_is_lost_is_stored_once(served: Served) -> None:
    before = (await served.app.operations.status()).events
    client, connection = connected(served, "lost", "refused", "busy", "well", "lost")

    receipt = await client.publish("order.paid", {"order": 1})
    await client.publish_many([NewEvent(type="order.paid"), NewEvent(type="order.sent")])

    assert (await served.app.operations.status()).events == before + 3
    assert receipt.is_duplicate is False
    assert len(connection.sent) == 6
    assert len({one.body for one in connection.sent}) == 2


async def test_ones_own_key_tells_a_repeated_publish(served: Served) -> None:
    client, _ = connected(served)

    first = await client.publish("order.paid", 1, idempotency_key="k")
    again = await client.publish("order.paid", 1, idempotency_key="k")

    assert (again.event_id, again.is_duplicate) == (first.event_id, True)
    with pytest.raises(IdempotencyConflictError):
        await client.publish("order.paid", 2, idempotency_key="k")


async def test_an_act_whose_answer_is_lost_is_not_repeated(served: Served) -> None:
    letter = (await served.letters())["acme"]
    client, connection = connected(served, "lost")

    with pytest.raises(ServerError, match="may have been done"):
        await client.replay([letter], why="fixed")

    assert len(connection.sent) == 1


async def test_an_act_that_was_certainly_not_done_is_tried_again(served: Served) -> None:
    letter = (await served.letters())["acme"]
    client, connection = connected(served, "refused", "refused")

    assert await client.replay([letter], why="fixed") == [letter]

    assert len(connection.sent) == 3


async def test_patience_ends(served: Served) -> None:
    client, connection = connected(served, *["refused"] * 50, patience="10s")

    with pytest.raises(ServerError, match="cannot be reached: nobody listens"):
        await client.status()

    assert 4 < len(connection.sent) < 50


async def test_who_is_asked_to_wait_waits(served: Served) -> None:
    clock = EagerClock()
    connection = AsgiConnection(served.app.asgi(login=False), "busy")
    client = AsyncClient(URL, connection=connection, clock=clock)

    await client.status()

    assert clock.waits[0] >= 2


async def test_lists_are_gone_through_page_by_page(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.client.looking.MOST_PER_PAGE", 1)
    client, connection = connected(served)

    letters = [one.id async for one in client.each_dead_letter(Query(destination="billing"))]
    events = [one.id async for one in client.each_event(EventQuery())]
    log = [one.event.id async for one in client.each_logged_event()]
    await client.resolve(letters, why="by hand")
    await client.reopen(letters, why="not so")
    entries = [one.action async for one in client.each_audit_entry(AuditQuery())]

    assert sorted(letters) == sorted((await served.letters()).values())
    assert (len(events), sorted(events), entries) == (2, sorted(log), ["reopen", "resolve"])
    assert len(connection.sent) > 8


async def test_a_dead_letter_is_looked_at_edited_and_sent(served: Served) -> None:
    letter = (await served.letters())["acme"]
    client, _ = connected(served)
    story = await client.show(letter)

    [change, *_] = await client.preview_edit(letter, {"order": 1})
    edited = await client.edit(letter, {"order": 1}, why="a slip", replay=False, mark=story.mark)

    assert change.path
    assert (edited.payload, (await client.show(letter)).payload) == ({"order": 1}, {"order": 1})
    [found] = [one async for one in client.export(Query(tenant="acme", destination="billing"))]
    assert found.delivery.payload == msgspec.Raw(b'{"order":1}')
    with pytest.raises(EditConflictError):
        await client.edit(letter, {}, why="late", mark=story.mark)
    assert (await client.edit(letter, None, why="nothing", replay=False)).payload is None


async def test_dead_letters_go_and_come_back(served: Served) -> None:
    client, _ = connected(served)
    letters = [one async for one in client.export(Query(destination="billing"))]
    ids = await client.select(Query(destination="billing"))

    await client.delete(ids, why="they are in a file")
    restored = await client.restore(letters, why="wanted after all")

    assert len(restored.deliveries) == 2
    assert (await client.restore(letters, why="again")).known == 2


async def test_results_are_waited_for(served: Served) -> None:
    client, _ = connected(served)
    receipt = await client.publish("order.paid", {})

    with pytest.raises(ResultTimeoutError):
        await receipt.result("billing", timeout="0s")
    await served.app.drain()

    assert await receipt.result("billing") is None


class Broadcast(AsgiConnection):
    """A stream that breaks, begins again, and ends."""

    async def stream(self, request: Request) -> AsyncIterator[bytes | Reply]:
        self.sent.append(request)
        fate = self.trouble.pop(0)
        if fate == "lost":
            raise AnswerLostError("the line was cut")
        if fate == "refused":
            yield Reply(status=403, headers={}, body=REFUSED)
            return
        for line in (b"event: trouble", b"data: {}", b"", b"event: figures", FRAME, b""):
            yield line


REFUSED = b'{"type": "forbidden", "title": "Forbidden", "status": 403, "detail": "not you"}'
FRAME = b"data: " + msgspec.json.encode(
    Figures(
        now=FakeClock().now(),
        events=7,
        unrouted=0,
        refused_settlements=0,
        deleted=0,
        destinations=(),
        workers=(),
    )
)


async def test_figures_come_live_over_breaks_until_they_may_no_more(served: Served) -> None:
    connection = Broadcast(served.asgi, "lost", "well", "well", "refused")
    client = AsyncClient(URL, connection=connection, clock=EagerClock())
    figures = client.live()

    assert [(await anext(figures)).events for _ in range(2)] == [7, 7]
    with pytest.raises(DeniedError, match="not you"):
        await anext(figures)


async def test_a_stream_that_stays_away_is_given_up(served: Served) -> None:
    connection = Broadcast(served.asgi, *["lost"] * 50)
    client = AsyncClient(URL, connection=connection, clock=EagerClock(), patience="5s")

    with pytest.raises(ServerError, match="sends nothing any more"):
        await anext(client.live())


async def test_what_went_wrong_is_an_error_that_advises(served: Served) -> None:
    client, _ = connected(served)
    await client.publish("order.paid", 1, key="k")

    with pytest.raises(VersionConflictError, match="at version 1, not 0") as conflict:
        await client.publish("order.paid", 1, key="k", expected_version=0)
    with pytest.raises(NotFoundError, match="no delivery 999"):
        await client.show(999)
    with pytest.raises(NotFoundError, match="did you mean 'billing'"):
        await client.pause("biling", why="a slip")
    with pytest.raises(UsageError, match="limit"):
        await client.deliveries(limit=0)

    assert (conflict.value.key, conflict.value.actual) == ("k", 1)


async def test_a_token_says_who_acts_and_is_never_shown(served: Served) -> None:
    made = await served.app.operations.create_token("ann", role="operate", by="test", why="x")
    client, connection = connected(served, token=made.secret)
    stranger, _ = connected(served, token=NOBODYS)
    letter = (await served.letters())["acme"]

    await client.replay([letter], why="fixed")

    [entry, *_] = await client.audit()
    assert entry.by == made.token.by
    assert made.secret not in repr(client)
    assert all(made.secret not in one.path for one in connection.sent)
    with pytest.raises(DeniedError, match="A token is needed"):
        await stranger.status()
    with pytest.raises(DeniedError, match="needs the role admin"):
        await client.tokens()
    with pytest.raises(UsageError, match="by the token"):
        await client.replay([letter], by="bob", why="in his name")


async def test_tokens_come_page_by_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.client.keeping._BATCH", 2)
    client, connection = connected(served)
    for number in range(5):
        await served.app.operations.create_token(f"t{number}", role="view", by="test", why="x")

    listed = await client.tokens()
    asked = len(connection.sent)

    assert listed == await served.app.operations.tokens()
    assert asked == 3
    assert await client.tokens(before=listed[1].id, limit=2) == listed[2:4]


async def test_a_token_goes_to_no_other_address(served: Served) -> None:
    client, connection = connected(served, "moved", token=NOBODYS)

    with pytest.raises(ServerError, match="name that one"):
        await client.status()

    assert len(connection.sent) == 1


async def test_who_is_no_server_of_ours_is_told_apart(served: Served) -> None:
    client, _ = connected(served, "foreign")

    with pytest.raises(ServerError, match="has answered 404, and not as a server of Redrive"):
        await client.status()


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("ftp://example.com", "write it like"),
        ("example.com", "write it like"),
        ("https://ann:secret@example.com", "REDRIVE_TOKEN"),
        ("https://example.com?token=secret", "REDRIVE_TOKEN"),
        ("http://[", "cannot be read"),
    ],
)
def test_an_address_that_is_none_is_refused_without_its_secrets(url: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice) as refused:
        Client(url)

    assert "secret" not in str(refused.value)


def test_an_address_is_written_as_it_is_used() -> None:
    assert str(Address.parse("https://example.com:443/redrive/api/v1/")) == (
        "https://example.com/redrive"
    )
    assert str(Address.parse("http://[::1]:8321")) == "http://[::1]:8321"


def test_server_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="REDRIVE_SERVER"):
        Client()
    monkeypatch.setenv("REDRIVE_SERVER", "https://redrive.example.com")
    monkeypatch.setenv("REDRIVE_TOKEN", "rdt_a b")

    with pytest.raises(ConfigurationError, match="exactly what") as refused:
        Client()

    assert "rdt_a" not in str(refused.value)
    monkeypatch.setenv("REDRIVE_TOKEN", "rdt_ab\n")
    assert repr(Client()) == "Client('https://redrive.example.com')"


async def test_more_than_a_server_takes_is_refused_before_it_is_sent(served: Served) -> None:
    client, connection = connected(served)

    with pytest.raises(UsageError, match="in several calls"):
        await client.publish_many([NewEvent(type="a")] * (MOST_AT_ONCE + 1))

    assert await client.publish_many([]) == ()
    assert connection.sent == []


async def test_trends_come_as_they_are_kept(served: Served) -> None:
    client, _ = connected(served)

    [trend] = await client.trends(["billing"], over="day")

    assert trend.points == (await served.app.operations.trends(["billing"], over="day"))[0].points
    assert trend.total.failed == 2
    with pytest.raises(UsageError, match="not over 'year'"):
        await client.trends(over="year")


async def test_what_has_no_route_says_where_to_do_it(served: Served) -> None:
    client, _ = connected(served)

    with pytest.raises(UsageError, match="where the store is"):
        await client.users()


def test_the_client_has_every_operation_that_has_a_route() -> None:
    own = {
        name
        for kind in RemoteOperations.__mro__
        if kind.__module__.startswith("redrive.client")
        for name in vars(kind)
        if not name.startswith("_")
    }
    operations = _public(Operations)
    by_paging = {"select", "export", "carry_out"}
    refused = {"within"}

    assert operations - own == set(LEFT_OUT) - by_paging - refused
    assert _public(AsyncClient) - set(LEFT_OUT) <= _public(Client) | {"open"} | by_paging
    for name in by_paging:
        assert hasattr(Client, name)


def _public(kind: type) -> set[str]:
    return {
        name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")
    }
