"""Requests: a destination is asked through its gate, and its answer is what the caller gets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook

from redrive import Breaker, PayloadError, Redrive, RequestError, RequestRefusedError, Retry, http
from redrive.app.calling import RequestOptions
from redrive.errors import (
    ConfigurationError,
    NotFoundError,
    StoreUnavailableError,
    TransactionError,
    UsageError,
)
from redrive.model.delivery import Status
from redrive.operations import GatewayDocument
from redrive.store import Query, Store
from redrive.transports.http import Bearer
from redrive.transports.loki import loki
from tests.http.receiver import Answer, Receiver, Silence, answer, bytes_answer, receiving
from tests.waiting import eventually

KEY = "whsec_bmV3IGtleSwgbmV3IGtleSwgbmV3IGtleSwgbmV3IQ=="
AT_ONCE = Retry(max_attempts=3, base="0s")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


def shop(store: str, receiver: Receiver, **options: Any) -> Redrive:  # noqa: ANN401 - of a destination
    app = Redrive(store)
    way = http(receiver.url + "/api", allow_private=True, signing_keys=KEY, auth=Bearer("token-1"))
    app.destination("crm", "order.*", transport=way, **{"retry": AT_ONCE, **options})
    return app


async def test_what_is_answered_is_returned_and_leaves_no_delivery(
    store: str, receiver: Receiver
) -> None:
    receiver.answers(answer(201, '{"number": 42}', x_kind="order"))
    async with shop(store, receiver) as app:
        response = await app.request("crm", {"order": 42}, path="/orders?full=1", method="PUT")
        deliveries = await everything(app)

    [request] = receiver.requests
    assert (request.method, request.path, request.body) == (
        "PUT",
        "/api/orders?full=1",
        b'{"order":42}',
    )
    assert request.headers["authorization"] == "Bearer token-1"
    Webhook(KEY).verify(request.body, dict(request.headers))
    assert (response.status, response.is_success, response.json()) == (201, True, {"number": 42})
    assert (response.headers["x-kind"], response.text) == ("order", '{"number": 42}')
    assert (response.attempts, response.check()) == (1, response)
    assert 0 < response.latency.total_seconds() <= response.took.total_seconds()
    assert deliveries == 0


async def test_a_stored_service_is_asked_and_followed_when_it_changes(
    store: str, receiver: Receiver
) -> None:
    document: dict[str, Any] = {"url": f"{receiver.url}/old", "allow_private": True}
    async with Redrive(store) as app:
        await app.operations.apply_gateway(GatewayDocument(services={"crm": document}), by="ada")

        await app.request("crm")
        await app.operations.alter_service("crm", {"url": f"{receiver.url}/new"}, by="ada")
        await app.request("crm", method="GET", path="/orders/42")
        await app.operations.alter_service("crm", {"enabled": False}, by="ada")
        with pytest.raises(RequestRefusedError, match="the service is disabled"):
            await app.request("crm")

    asked = [(one.method, one.path, one.body) for one in receiver.requests]
    assert asked == [("POST", "/old", b"null"), ("GET", "/new/orders/42", b"")]


async def test_the_store_is_asked_once_before_and_told_once_after(
    store: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answers(answer(200), answer(503), answer(502), answer(200))
    document = {"url": receiver.url, "allow_private": True, "retry": {"base": "0s"}}
    async with Redrive(store) as app:
        await app.operations.apply_gateway(GatewayDocument(services={"crm": document}), by="ada")
        await app.request("crm")  # reads how to get there
        trips = counted(await app._store(), monkeypatch)  # noqa: SLF001 - its trips are counted

        response = await app.request("crm")
        made = dict(trips)

    assert response.attempts == 3
    assert made == {"begin_call": 1, "report": 1}


async def test_an_answer_is_returned_though_the_store_is_lost_meanwhile(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.always(answer(200, "here"))

    async def lost(*_: object, **__: object) -> None:
        raise StoreUnavailableError("gone")

    async with shop("memory://", receiver) as app:
        store = await app._store()  # noqa: SLF001 - it is lost in the middle
        monkeypatch.setattr(store, "report", lost)
        response = await app.request("crm")
        monkeypatch.setattr(store, "begin_call", lost)
        with pytest.raises(StoreUnavailableError):
            await app.request("crm")

    assert (response.text, len(receiver.requests)) == ("here", 1)


async def test_a_request_is_retried_as_deliveries_are_and_the_last_answer_counts(
    receiver: Receiver,
) -> None:
    receiver.always(answer(503, "not now"))
    async with shop("memory://", receiver) as app:
        response = await app.request("crm", {"order": 42})
        with pytest.raises(RequestError, match="answered 503"):
            response.check()

    assert (response.status, response.text, response.attempts) == (503, "not now", 3)
    assert [one.headers["redrive-attempt"] for one in receiver.requests] == ["1", "2", "3"]
    assert len(set(receiver.ids)) == 1


@pytest.mark.parametrize(
    ("given", "attempts"), [(answer(404), 1), (answer(429), 1), (answer(503, retry_after="9"), 1)]
)
async def test_what_trying_again_would_not_help_is_answered_at_once(
    receiver: Receiver, given: Answer, attempts: int
) -> None:
    receiver.always(given)
    async with shop("memory://", receiver) as app:
        response = await app.request("crm")

    assert response.attempts == attempts


async def test_who_asks_for_less_is_left_alone_for_as_long(receiver: Receiver) -> None:
    receiver.answers(answer(429, retry_after="60"))
    async with shop("memory://", receiver) as app:
        await app.request("crm")
        with pytest.raises(RequestRefusedError, match="it has asked for less") as refused:
            await app.request("crm")

    assert (refused.value.hold, len(receiver.requests)) == ("slowed", 1)


async def test_an_open_breaker_refuses_at_once_and_a_request_closes_it(
    store: str, receiver: Receiver
) -> None:
    receiver.answers(answer(503, "closed for the night"))
    breaker = Breaker(failures=1, open_for="40s", successes=1)
    async with shop(store, receiver, retry=Retry(max_attempts=1), breaker=breaker) as app:
        await app.request("crm")
        with pytest.raises(RequestRefusedError) as refused:
            await app.request("crm")
        sent = len(receiver.requests)
        now = next(iter(await app.operations.gates())).at
        await app.operations.open_breaker("crm", by="ada", until=now + timedelta(milliseconds=1))
        await eventually(lambda: succeeds(app), what="it is asked again")
        back = await app.request("crm")

    assert (refused.value.hold, sent, back.status) == ("breaker_open", 1, 204)
    assert "its breaker is open" in str(refused.value)
    assert "503 Service Unavailable: closed for the night" in str(refused.value)
    assert refused.value.until is not None


async def test_no_more_are_asked_at_once_than_the_destination_may_have(
    store: str, receiver: Receiver
) -> None:
    silence = Silence()
    receiver.answers(silence)
    async with shop(store, receiver, concurrency=1) as app:
        first = asyncio.create_task(app.request("crm"))
        await silence.began.wait()
        with pytest.raises(RequestRefusedError, match="as many run as it may have at once"):
            await app.request("crm")
        first.cancel()
        await asyncio.wait([first])
        second = await app.request("crm")

    assert second.is_success


async def test_a_request_ends_with_its_time_and_blames_nobody_for_that(
    receiver: Receiver,
) -> None:
    receiver.always(Silence())
    breaker = Breaker(failures=1)
    async with shop("memory://", receiver, breaker=breaker) as app:
        with pytest.raises(RequestError, match="gave no answer in 1 try: No answer within"):
            await app.request("crm", timeout="50ms")
        gate = next(iter(await app.operations.gates()))

    assert gate.hold is None


async def test_with_a_fallback_what_was_not_answered_is_published_under_the_same_id(
    store: str, receiver: Receiver
) -> None:
    receiver.answers(answer(503), answer(503), answer(503))
    async with shop(store, receiver, breaker=None) as app:
        response = await app.request("crm", {"order": 42}, type="order.paid", fallback="publish")
        before = len(receiver.requests)
        tally = await app.drain()

    assert (response.status, response.is_published, response.attempts) == (None, True, 3)
    assert response.receipt is not None
    assert response.receipt.destinations == ("crm",)
    assert response.check() is response
    assert (before, tally.delivered) == (3, 1)
    assert set(receiver.ids) == {response.receipt.event_id}


async def test_with_a_fallback_a_shut_gate_and_a_refusal_are_told_apart(
    receiver: Receiver,
) -> None:
    receiver.always(answer(404))
    async with shop("memory://", receiver) as app:
        refused = await app.request("crm", fallback="publish")
        await app.operations.pause("crm", by="ada", why="they move")
        held = await app.request("crm", fallback="publish")
        with pytest.raises(RequestRefusedError, match="it is paused: they move"):
            await app.request("crm")

    assert (refused.status, refused.is_published) == (404, False)
    assert (held.status, held.is_published, held.attempts) == (None, True, 0)


async def test_what_is_gone_there_does_not_pause_the_destination(receiver: Receiver) -> None:
    receiver.always(answer(410))
    async with shop("memory://", receiver) as app:
        await app.request("crm", method="GET", path="/orders/42")
        again = await app.request("crm", method="GET", path="/orders/43")

    assert again.status == 410


async def test_who_cannot_be_reached_is_told_without_a_secret() -> None:
    async with receiving() as gone:
        url = f"{gone.url}/hooks?token=hunter2-hunter2"
    app = Redrive("memory://")
    app.destination("crm", "*", transport=http(url, allow_private=True), retry=AT_ONCE)
    async with app:
        with pytest.raises(RequestError, match="gave no answer in 3 tries") as failed:
            await app.request("crm")

    assert "hunter2" not in str(failed.value)
    assert failed.value.attempts == 3


async def test_the_guard_holds_for_requests(receiver: Receiver) -> None:
    app = Redrive("memory://")
    way = http(receiver.url, allow_private=True)
    app.destination("crm", "*", transport=msgspec.structs.replace(way, allowed=()), retry=AT_ONCE)
    async with app:
        with pytest.raises(RequestError, match=r"in 1 try: .* loopback"):
            await app.request("crm")

    assert receiver.requests == []


async def test_an_answer_that_is_too_long_or_no_json_says_so(receiver: Receiver) -> None:
    receiver.answers(bytes_answer(200, b"[" + b"1," * 40_000 + b"1]"), answer(200, "hello"))
    async with shop("memory://", receiver) as app:
        long, text = await app.request("crm"), await app.request("crm")

    with pytest.raises(PayloadError, match=r"cut off after 65,536 bytes; raise response_limit"):
        long.json()
    with pytest.raises(PayloadError, match="is no JSON"):
        text.json()
    assert (long.is_cut, text.is_cut) == (True, False)


async def test_the_door_without_an_event_loop_asks_too(receiver: Receiver) -> None:
    receiver.answers(answer(200, '{"a": 1}'))
    app = shop("memory://", receiver)

    response = await asyncio.to_thread(app.sync.request, "crm", {"order": 42}, path="/x")
    await asyncio.to_thread(app.sync.close)

    assert response.json() == {"a": 1}
    assert json.loads(receiver.requests[0].body) == {"order": 42}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "TRACE"}, "it is one of GET, HEAD, POST, PUT, PATCH, DELETE"),
        ({"path": "orders"}, "begins with a slash"),
        ({"headers": {"Host": "x"}}, "set by Redrive"),
        ({"timeout": "0s"}, "nobody answers in no time"),
        ({"fallback": "queue"}, 'write "publish"'),
        ({"fallback": "publish", "path": "/x"}, "does not go with method, path and headers"),
        ({"pathh": "/x"}, "did you mean 'path'"),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_advice(
    receiver: Receiver, options: RequestOptions, message: str
) -> None:
    async with shop("memory://", receiver) as app:
        with pytest.raises((ConfigurationError, UsageError), match=message):
            await app.request("crm", **options)

    assert receiver.requests == []


async def test_a_destination_with_a_form_of_its_own_keeps_it(receiver: Receiver) -> None:
    app = Redrive("memory://")
    app.destination("logs", "*", transport=loki(receiver.url, allow_private=True))
    async with app:
        with pytest.raises(UsageError, match="has a form of its own"):
            await app.request("logs", {"a": 1}, path="/other")
        response = await app.request("logs", {"a": 1})

    assert (response.status, len(receiver.requests)) == (204, 1)


async def test_only_who_answers_can_be_asked(sqlite: str) -> None:
    app = Redrive(sqlite)

    @app.handler("order.*")
    async def bill(event: object) -> None: ...

    async with app, Redrive(sqlite) as stranger:
        with pytest.raises(UsageError, match="gives no answer"):
            await app.request("bill")
        with pytest.raises(NotFoundError, match="did you mean 'bill'"):
            await app.request("bil")
        with pytest.raises(UsageError, match="declared by code that this process has not"):
            await stranger.request("bill")
        async with app.transaction():
            with pytest.raises(TransactionError, match="make a request"):
                await app.request("bill")


async def everything(app: Redrive) -> int:
    found = [await app.operations.deliveries(Query(status=one)) for one in Status]
    return sum(len(one.deliveries) for one in found)


async def succeeds(app: Redrive) -> bool:
    try:
        return (await app.request("crm")).is_success
    except RequestRefusedError:
        return False


def counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of a store by name."""
    trips: Counter[str] = Counter()

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - of any method
            trips[name] += 1
            return method(*args, **kwargs)

        return count

    for name in dir(store):
        if not name.startswith("_") and asyncio.iscoroutinefunction(getattr(store, name)):
            monkeypatch.setattr(store, name, counting(name, getattr(store, name)))
    return trips
