"""What was sent and answered stays with a failed delivery: bounded, and without a secret."""

import base64
from pathlib import Path
from typing import Any

import pytest

from redrive import Redrive, Retry, http
from redrive.model.outcome import Exchange
from redrive.model.settlement import FailureReason
from redrive.operations import Story
from redrive.transports.http import Basic, Bearer
from tests.http.receiver import Receiver, Silence, answer, bytes_answer, endless
from tests.http.sending import fail, leased

AT_ONCE = Retry(max_attempts=2, base="0s", cap="0s", jitter="none")
KEY = f"whsec_{base64.b64encode(b'k' * 32).decode()}"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/redrive.db"


async def exchanged(url: str, **options: Any) -> Exchange:  # noqa: ANN401 - any option
    exchange = (await fail(url, leased(b'{"order":42}', traceparent="00-abc"), **options)).exchange
    assert exchange is not None
    return exchange


async def story_of(app: Redrive, number: int = 1) -> Story:
    return await app.operations.show(number)


async def test_a_dead_letter_shows_the_request_and_the_answer_of_its_last_try(
    receiver: Receiver, store: str
) -> None:
    app = Redrive(store)
    app.destination(
        "crm",
        "order.*",
        transport=http(f"{receiver.url}/hooks", allow_private=True),
        retry=AT_ONCE,
        breaker=None,
    )
    receiver.answers(answer(503, "first"), answer(500, "second\nline", x_request="r-7"))
    async with app:
        await app.publish("order.paid", {"order": 42})
        await app.drain()
        exchange = (await story_of(app)).delivery.exchange
        page = await app.operations.dead_letters()

    assert exchange is not None
    assert (exchange.method, exchange.url) == ("POST", f"{receiver.url}/hooks")
    assert exchange.headers["content-type"] == "application/json"
    assert exchange.size == len(b'{"order":42}')
    assert (exchange.status, exchange.reason) == (500, "Internal Server Error")
    assert exchange.answer_headers["x-request"] == "r-7"
    assert (exchange.body, exchange.is_cut) == ("second\nline", False)
    assert [one.exchange for one in page.deliveries] == [None]


async def test_a_try_without_an_answer_leaves_no_older_answer_behind(
    receiver: Receiver, store: str
) -> None:
    app = Redrive(store)
    app.destination(
        "crm",
        "order.*",
        transport=http(receiver.url, allow_private=True),
        retry=AT_ONCE,
        timeout="200ms",
    )
    receiver.answers(answer(503, "first"), Silence())
    async with app:
        await app.publish("order.paid")
        await app.drain()
        delivery = (await story_of(app)).delivery

    assert delivery.fault is not None
    assert delivery.fault.rule == "timeout"
    assert delivery.exchange is None


async def test_a_delivery_that_arrives_or_is_replayed_keeps_no_exchange(
    receiver: Receiver, store: str
) -> None:
    app = Redrive(store)
    app.destination(
        "crm", "order.*", transport=http(receiver.url, allow_private=True), retry=AT_ONCE
    )
    receiver.answers(answer(503), answer(204), answer(404, "who?"))
    async with app:
        await app.publish("order.paid")
        await app.drain()
        delivered = (await story_of(app)).delivery.exchange
        await app.publish("order.paid")
        await app.drain()
        failed = (await story_of(app, 2)).delivery.exchange
        await app.operations.replay([2], by="ann")
        replayed = (await story_of(app, 2)).delivery.exchange

    assert failed is not None
    assert (delivered, replayed) == (None, None)


async def test_what_is_deleted_takes_its_exchange_with_it(receiver: Receiver, store: str) -> None:
    app = Redrive(store)
    app.destination("crm", "order.*", transport=http(receiver.url, allow_private=True))
    receiver.answers(answer(404))
    async with app:
        await app.publish("order.paid")
        await app.drain()
        await app.operations.delete([1], by="ann", why="a test")

        assert (await app.operations.dead_letters()).deliveries == ()


async def test_no_secret_is_in_an_exchange(receiver: Receiver) -> None:
    def echo(status: int, *secrets: str) -> Any:  # noqa: ANN401 - an answer
        return answer(
            status,
            " ".join(secrets),
            set_cookie="session=deadbeef",
            x_echo=secrets[0],
            location=f"https://elsewhere.example/{secrets[0]}",
        )

    secrets = ("s3cr3t-token", "pass-in-a-header", "query-value", "a" * 20 + "0123")
    receiver.answers(echo(500, *secrets))
    url = f"{receiver.url}/hooks/{secrets[3]}?key={secrets[2]}&v=2"

    exchange = await exchanged(
        url,
        auth=Bearer(secrets[0]),
        headers={"x-password": secrets[1], "x-shop": "berlin"},
        signing_keys=KEY,
    )

    told = repr(exchange)
    assert not any(secret in told for secret in (*secrets, "deadbeef", KEY))
    assert exchange.url == f"{receiver.url}/hooks/[redacted]?key=[redacted]&v=[redacted]"
    assert exchange.headers["authorization"] == "[redacted]"
    assert exchange.headers["webhook-signature"] == "[redacted]"
    assert exchange.headers["x-shop"] == "berlin"
    assert exchange.headers["traceparent"] == "00-abc"
    assert exchange.answer_headers["set-cookie"] == "[redacted]"
    assert exchange.answer_headers["location"] == "https://elsewhere.example"


async def test_what_was_really_sent_is_kept(receiver: Receiver, store: str) -> None:
    app = Redrive(store)
    transport = http(receiver.url, allow_private=True, body="event")
    app.destination("crm", "order.*", transport=transport, retry=AT_ONCE)
    receiver.always(answer(500))
    async with app:
        await app.publish("order.paid", {"order": 42}, key="k")
        await app.publish("order.paid", "x" * 2**17)
        await app.drain()
        exchange = (await story_of(app)).delivery.exchange
        long = (await story_of(app, 2)).delivery.exchange

    assert exchange is not None
    assert long is not None
    assert exchange.sent.encode() in {one.body for one in receiver.requests}
    assert (exchange.size, exchange.is_sent_cut) == (len(exchange.sent), False)
    assert (len(long.sent), long.is_sent_cut) == (2**16, True)
    assert long.size > 2**17


async def test_the_secrets_of_an_event_are_kept_but_not_shown(
    receiver: Receiver, store: str
) -> None:
    app = Redrive(store)
    app.destination("crm", "order.*", transport=http(receiver.url, allow_private=True))
    receiver.answers(answer(404, "no user with HUNTER2-hunter2"))
    async with app:
        await app.publish("order.paid", {"password": "hunter2-hunter2"})
        await app.drain()
        shown = await story_of(app)
        whole = await app.operations.reveal(1, by="ann")
        [letter] = [one async for one in app.operations.export()]

    assert "hunter2" not in repr(shown).lower()
    assert shown.delivery.exchange is not None
    assert shown.delivery.exchange.sent == '{"password":"[redacted]"}'
    assert whole.delivery.exchange is not None
    assert whole.delivery.exchange.sent == '{"password":"hunter2-hunter2"}'
    assert letter.delivery.exchange == whole.delivery.exchange


async def test_a_query_without_a_name_is_a_secret(receiver: Receiver) -> None:
    receiver.answers(answer(500, "who is Query%20TOKEN?"))

    faulted = await fail(f"{receiver.url}/hook?query+token")

    assert faulted.exchange is not None
    assert faulted.exchange.url == f"{receiver.url}/hook?[redacted]"
    assert "token" not in repr(faulted).lower()


@pytest.mark.parametrize(
    "spelled", ["s3cr/t+Key one", "S3CR/T+KEY ONE", "s3cr%2ft%2BKey+one", "s3cr\\/t+Key\\u0020one"]
)
async def test_an_answer_that_spells_a_secret_otherwise_is_blanked(
    spelled: str, receiver: Receiver
) -> None:
    receiver.answers(answer(500, f"<{spelled}>"))

    faulted = await fail(receiver.url, auth=Bearer("s3cr/t+Key one"))

    assert faulted.exchange is not None
    assert faulted.exchange.body == "<[redacted]>"
    assert "<[redacted]>" in faulted.fault.message


async def test_a_password_does_not_show_in_its_encoded_form(receiver: Receiver) -> None:
    encoded = base64.b64encode(b"ann:hunter22").decode()
    receiver.answers(answer(500, f"bad credentials {encoded}"))

    exchange = await exchanged(receiver.url, auth=Basic("ann", "hunter22"))

    assert exchange.body == "bad credentials [redacted]"


async def test_of_a_long_answer_64_kb_are_kept(receiver: Receiver) -> None:
    receiver.answers(answer(500, "x" * 2**16 + "y"))
    long = await exchanged(receiver.url, response_limit=2**20)
    receiver.answers(answer(500, "x" * 100_000))
    read = await exchanged(receiver.url)
    receiver.answers(answer(500, "x" * 2_000))
    short = await exchanged(receiver.url)
    receiver.answers(endless(500))
    unending = await exchanged(receiver.url)

    assert (len(long.body), long.is_cut) == (2**16, True)
    assert (len(read.body), read.is_cut) == (2**16, True)
    assert (len(short.body), short.is_cut) == (2_000, False)
    assert (len(unending.body), unending.is_cut) == (2**16, True)


async def test_a_secret_that_is_cut_in_two_is_not_half_shown(receiver: Receiver) -> None:
    whole = "the-whole-of-it-in-one-piece"
    receiver.answers(answer(500, "x" * (2**12 - 10) + whole))

    exchange = await exchanged(receiver.url, auth=Bearer(whole), response_limit=2**12)

    assert exchange.body == "x" * (2**12 - 10)


async def test_bytes_that_are_no_text_can_be_kept(receiver: Receiver, tmp_path: Path) -> None:
    app = Redrive(f"sqlite:///{tmp_path}/redrive.db")
    app.destination("crm", "order.*", transport=http(receiver.url, allow_private=True))
    receiver.answers(bytes_answer(404, b"\x00\xff\xfe\x1b[31m"))
    async with app:
        await app.publish("order.paid")
        await app.drain()
        exchange = (await story_of(app)).delivery.exchange

    assert exchange is not None
    assert exchange.body == "\ufffd\ufffd\ufffd\x1b[31m"


async def test_a_host_that_cannot_be_reached_shows_what_was_to_be_sent() -> None:
    exchange = await exchanged("http://127.0.0.1:9/hooks")

    assert (exchange.url, exchange.status, exchange.body) == ("http://127.0.0.1:9/hooks", None, "")


async def test_the_log_of_tries_stays_short(receiver: Receiver, store: str) -> None:
    app = Redrive(store)
    app.destination(
        "crm", "order.*", transport=http(receiver.url, allow_private=True), retry=AT_ONCE
    )
    receiver.answers(answer(500, "x" * 50_000), answer(500, "x" * 50_000))
    async with app:
        await app.publish("order.paid")
        await app.drain()
        delivery = (await story_of(app)).delivery

    assert delivery.exchange is not None
    assert len(delivery.exchange.body) == 50_000
    assert all(one.fault is not None and len(one.fault.message) < 1_200 for one in delivery.log)


async def test_410_pauses_the_destination_and_says_why(receiver: Receiver, store: str) -> None:
    app = Redrive(store)
    app.destination(
        "crm", "order.*", transport=http(receiver.url, allow_private=True), concurrency=1
    )
    receiver.always(answer(410))
    async with app:
        for number in range(5):
            await app.publish("order.paid", number)
        tally = await app.drain()
        [gate] = await app.operations.gates()
        [letter] = (await app.operations.dead_letters()).deliveries

    assert (tally.failed, len(receiver.requests)) == (1, 1)
    assert letter.reason is FailureReason.TERMINAL
    assert gate.gate.pause is not None
    assert gate.gate.pause.by == "redrive"
    assert gate.gate.pause.why.endswith("answered 410 Gone")


async def test_410_that_is_to_be_retried_pauses_nothing(receiver: Receiver) -> None:
    receiver.answers(answer(410))

    faulted = await fail(receiver.url, retry_on_status={410})

    assert faulted.pause == ""
