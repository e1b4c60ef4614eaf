"""HTTP destinations on the real engine: retries, time-outs, replays, batches, dead letters."""

import base64
import logging

import msgspec
import pytest
from standardwebhooks import Webhook

from redrive import Breaker, NewEvent, Redrive, Retry, http
from redrive.model.delivery import Status
from redrive.model.settlement import FailureReason
from redrive.observer import BreakerChanged, Fact
from redrive.store import Query
from redrive.testing import Kit
from redrive.transports.http import Bearer
from tests.http.receiver import Receiver, Silence, answer

AT_ONCE = Retry(max_attempts=3, base="0s", cap="0s", jitter="none")
KEY = f"whsec_{base64.b64encode(b'k' * 32).decode()}"


class Listening:
    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def notice(self, fact: Fact) -> None:
        self.facts.append(fact)


async def test_an_id_stays_the_same_over_every_try_and_replay(receiver: Receiver) -> None:
    """It is what the destination tells repetitions by."""
    app = Redrive("memory://")
    app.destination(
        "crm",
        "order.*",
        transport=http(receiver.url, signing_keys=KEY, allow_private=True),
        retry=AT_ONCE,
        breaker=None,
    )
    receiver.answers(answer(503), answer(500), answer(502), answer(503))

    async with app:
        receipt = await app.publish("order.paid", {"order": 42})
        failed = await app.drain()
        (letter,) = (await app.operations.dead_letters()).deliveries
        await app.operations.replay([letter.id], by="ann", why="it is back")
        delivered = await app.drain()

    assert (failed.retried, failed.failed) == (2, 1)
    assert (delivered.retried, delivered.delivered) == (1, 1)
    assert receiver.ids == [receipt.event_id] * 5
    assert {one.body for one in receiver.requests} == {b'{"order":42}'}
    for one in receiver.requests:
        Webhook(KEY).verify(one.body, dict(one.headers))


async def test_an_edited_payload_is_what_is_sent_and_signed(receiver: Receiver) -> None:
    app = Redrive("memory://")
    transport = http(receiver.url, signing_keys=KEY, allow_private=True)
    app.destination("crm", "order.*", transport=transport, retry=AT_ONCE)
    receiver.answers(answer(422), answer(503))

    async with app:
        receipt = await app.publish("order.paid", {"order": 42})
        await app.drain()
        await app.operations.edit(1, {"order": "42"}, by="ann", why="they want text")
        tally = await app.drain()

    assert (tally.retried, tally.delivered) == (1, 1)
    assert receiver.ids == [receipt.event_id] * 3
    assert [one.body for one in receiver.requests] == [
        b'{"order":42}',
        b'{"order":"42"}',
        b'{"order":"42"}',
    ]
    for one in receiver.requests:
        Webhook(KEY).verify(one.body, dict(one.headers))


async def test_one_worker_uses_its_connection_again_and_a_later_one_starts_anew(
    receiver: Receiver,
) -> None:
    app = Redrive("memory://")
    app.destination(
        "crm", "order.*", transport=http(receiver.url, allow_private=True), concurrency=1
    )

    async with app:
        for number in range(5):
            await app.publish("order.paid", number)
        await app.drain()
        first = receiver.connections
        await app.publish("order.paid", 5)
        await app.drain()

    assert len(receiver.requests) == 6
    assert first == 1
    assert receiver.connections == 2


async def test_a_slow_destination_is_given_up_at_the_time_out(receiver: Receiver) -> None:
    app = Redrive("memory://")
    silence = Silence()
    receiver.answers(silence)
    app.destination(
        "crm",
        "order.*",
        transport=http(receiver.url, allow_private=True),
        timeout="100ms",
        retry=Retry(max_attempts=1),
    )

    async with app:
        await app.publish("order.paid")
        await app.drain()
        (letter,) = (await app.operations.dead_letters()).deliveries
        await silence.ended.wait()

    assert letter.reason is FailureReason.EXHAUSTED
    assert letter.fault is not None
    assert letter.fault.rule == "timeout"
    assert "100ms" in letter.fault.message


async def test_a_worker_that_is_told_to_quit_hangs_up_on_a_slow_destination(
    receiver: Receiver,
) -> None:
    app = Redrive("memory://")
    silence = Silence()
    receiver.answers(silence)
    app.destination("crm", "order.*", transport=http(receiver.url, allow_private=True))

    async with app:
        await app.publish("order.paid")
        async with app.worker() as worker:
            await silence.began.wait()
            worker.quit()
        await silence.ended.wait()
        page = await app.operations.deliveries(Query(status=Status.PENDING))

    (given_back,) = page.deliveries
    assert given_back.attempts == 0


async def test_too_many_requests_spends_no_attempt_and_waits_as_told(receiver: Receiver) -> None:
    app = Redrive("memory://")
    app.destination(
        "crm",
        "order.*",
        transport=http(receiver.url, allow_private=True),
        retry=Retry(max_attempts=1),
    )
    receiver.answers(answer(429, retry_after="120"), answer(429, retry_after="120"))

    async with Kit(app) as kit:
        await app.publish("order.paid")
        early = await kit.run_for("119s")
        late = await kit.drain(until="10m")

    assert (early.snoozed, early.delivered) == (1, 0)
    assert (late.snoozed, late.delivered) == (1, 1)
    assert len(receiver.requests) == 3


@pytest.mark.parametrize("breaker", [None, Breaker(failures=1, open_for="1s")])
async def test_retry_after_of_a_failure_slows_the_whole_destination(
    receiver: Receiver, breaker: Breaker | None
) -> None:
    app = Redrive("memory://")
    app.destination(
        "crm",
        "order.*",
        transport=http(receiver.url, allow_private=True),
        retry=Retry(max_attempts=1),
        concurrency=1,
        breaker=breaker,
    )
    listening = Listening()
    app.observe(listening)
    receiver.answers(answer(503, retry_after="60"))

    async with Kit(app) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(5)])
        early = await kit.run_for("59s")
        late = await kit.drain(until="10m")

    assert (early.failed, early.delivered) == (1, 0)
    assert late.delivered == 4
    opened = any(isinstance(one, BreakerChanged) for one in listening.facts)
    assert opened is (breaker is not None)


async def test_what_a_destination_refuses_is_a_dead_letter_at_once(receiver: Receiver) -> None:
    app = Redrive("memory://")
    app.destination("crm", "order.*", transport=http(receiver.url, allow_private=True))
    receiver.answers(answer(422, '{"error":"no such customer"}'))

    async with app:
        await app.publish("order.paid")
        await app.drain()
        (letter,) = (await app.operations.dead_letters()).deliveries

    assert letter.reason is FailureReason.TERMINAL
    assert letter.attempts == 1
    assert letter.fault is not None
    assert (letter.fault.error_class, letter.fault.code) == ("HTTP 422", "422")
    assert "no such customer" in letter.fault.message


async def test_no_secret_is_in_the_story_of_a_dead_letter_or_in_what_observers_hear(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "hunter2-and-a-bit-more"  # noqa: S105 - it is what must not be found
    caplog.set_level(logging.DEBUG)
    app = Redrive("memory://")
    app.destination(
        "crm",
        "order.*",
        transport=http(
            f"{receiver.url}/{secret}?token={secret}",
            auth=Bearer(secret),
            signing_keys=KEY,
            allow_private=True,
        ),
        retry=AT_ONCE,
    )
    listening = Listening()
    app.observe(listening)
    receiver.answers(
        answer(503, f"Bearer {secret} is over its limit", reason=f"Not {secret}"),
        answer(500, f"GET /{secret}?token={secret} failed; signed with {KEY}"),
        answer(400, secret),
    )

    async with app:
        await app.publish("order.paid")
        await app.drain()
        (letter,) = (await app.operations.dead_letters()).deliveries
        story = await app.operations.show(letter.id)

    told = (
        msgspec.json.encode(story.delivery).decode() + repr((story, listening.facts)) + caplog.text
    )
    assert "[redacted]" in told
    assert len(story.delivery.log) == 3
    for hidden in (secret, KEY, KEY.removeprefix("whsec_")):
        assert hidden not in told


async def test_a_private_address_is_a_dead_letter_with_advice(receiver: Receiver) -> None:
    """A name may lead to one at any time; an address in its place is refused when declared."""
    app = Redrive("memory://")
    guarded = msgspec.structs.replace(http(receiver.url, allow_private=True), allowed=())
    app.destination("crm", "order.*", transport=guarded)

    async with app:
        await app.publish("order.paid")
        await app.drain()
        (letter,) = (await app.operations.dead_letters()).deliveries

    assert letter.reason is FailureReason.TERMINAL
    assert letter.fault is not None
    assert letter.fault.rule == "address not allowed"
    assert 'allow_networks=("127.0.0.1",)' in letter.fault.message
    assert receiver.requests == []


async def test_a_batch_is_one_request_that_names_every_event(receiver: Receiver) -> None:
    app = Redrive("memory://")
    app.destination(
        "crm",
        "order.*",
        transport=http(receiver.url, batch=3, signing_keys=KEY, allow_private=True),
    )

    async with app:
        receipts = [await app.publish("order.paid", number) for number in range(5)]
        tally = await app.drain()

    bodies = [msgspec.json.decode(one.body) for one in receiver.requests]
    assert tally.delivered == 5
    assert sorted(len(body) for body in bodies) == [2, 3]
    assert [item["id"] for body in bodies for item in body] == [one.event_id for one in receipts]
    assert [item["payload"] for body in bodies for item in body] == [0, 1, 2, 3, 4]
    assert len(set(receiver.ids)) == 2
    for one in receiver.requests:
        Webhook(KEY).verify(one.body, dict(one.headers))


async def test_a_batch_of_payloads_is_an_array_of_them_as_they_are(receiver: Receiver) -> None:
    app = Redrive("memory://")
    app.destination(
        "crm",
        "order.*",
        transport=http(receiver.url, batch=10, body="payload", allow_private=True),
    )

    async with app:
        await app.publish("order.paid", {"order": 1})
        await app.publish("order.paid", [2])
        await app.drain()

    assert [one.body for one in receiver.requests] == [b'[{"order":1},[2]]']


async def test_a_batch_that_is_sent_again_has_the_same_id(receiver: Receiver) -> None:
    app = Redrive("memory://")
    app.destination(
        "crm", "order.*", transport=http(receiver.url, batch=3, allow_private=True), retry=AT_ONCE
    )
    receiver.answers(answer(503))

    async with app:
        for number in range(3):
            await app.publish("order.paid", number)
        tally = await app.drain()

    assert (tally.retried, tally.delivered) == (3, 3)
    assert len(receiver.requests) == 2
    assert receiver.ids[0] == receiver.ids[1]


async def test_one_event_that_is_refused_does_not_condemn_its_batch(receiver: Receiver) -> None:
    """The answer to a batch does not say which of its events is the bad one."""
    app = Redrive("memory://")
    app.destination("crm", "order.*", transport=http(receiver.url, batch=3, allow_private=True))

    async with app:
        for order in ("good", "bad", "fine"):
            await app.publish("order.paid", order)
        receiver.refuses(b'"bad"', status=422)
        tally = await app.drain()
        (letter,) = (await app.operations.dead_letters()).deliveries

    taken = [one.body for one in receiver.requests if b'"bad"' not in one.body]
    assert (tally.delivered, tally.failed) == (2, 1)
    assert letter.fault is not None
    assert letter.fault.code == "422"
    assert len(taken) == 2


async def test_a_batch_that_is_not_welcome_at_all_is_not_sent_again_in_pieces(
    receiver: Receiver,
) -> None:
    app = Redrive("memory://")
    app.destination("crm", "order.*", transport=http(receiver.url, batch=3, allow_private=True))
    receiver.answers(answer(401))

    async with app:
        for number in range(3):
            await app.publish("order.paid", number)
        tally = await app.drain()

    assert tally.failed == 3
    assert len(receiver.requests) == 1
