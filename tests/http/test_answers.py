"""What becomes of a delivery by the destination's answer, or by none."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from redrive.model.outcome import Nature, Succeeded
from redrive.policies.terms import Terms
from redrive.testing import FakeClock
from redrive.transports.http import ApiKey, Basic, Bearer
from tests.http.receiver import Receiver, answer, answering_bytes, bytes_answer, endless, receiving
from tests.http.sending import FakeResolver, fail, leased, send, transport_to

SECRET = "hunter2-and-a-bit-more"  # noqa: S105 - it is what must not be found


@asynccontextmanager
async def full_backlog() -> AsyncIterator[str]:
    """A port that lets nobody in: its queue of connections to accept is full."""
    with socket.socket() as listener, socket.socket() as queued, socket.socket() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        queued.connect(("127.0.0.1", port))
        waiting.setblocking(False)  # noqa: FBT003 - the library's own way
        waiting.connect_ex(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_a_2xx_is_a_success(receiver: Receiver, status: int) -> None:
    receiver.answers(answer(status, "" if status == 204 else "thanks"))

    assert await send(receiver.url) == Succeeded()


@pytest.mark.parametrize(
    ("status", "nature", "rule"),
    [
        (301, Nature.TERMINAL, "status 301"),
        (400, Nature.TERMINAL, "status 400"),
        (404, Nature.TERMINAL, "status 404"),
        (408, Nature.TRANSIENT, "status 408"),
        (410, Nature.TERMINAL, "410 gone"),
        (425, Nature.TRANSIENT, "status 425"),
        (429, Nature.THROTTLED, "status 429"),
        (500, Nature.TRANSIENT, "status 500"),
        (503, Nature.TRANSIENT, "status 503"),
        (507, Nature.TRANSIENT, "default: status 507"),
    ],
)
async def test_a_status_decides_and_the_rule_is_kept(
    receiver: Receiver, status: int, nature: Nature, rule: str
) -> None:
    receiver.answers(answer(status, "no,\n\tnot\x1b[31m now", reason="So So"))

    failure = await fail(receiver.url)

    assert (failure.nature, failure.fault.rule) == (nature, rule)
    assert failure.fault.error_class == f"HTTP {status}"
    assert failure.fault.code == str(status)
    assert f"answered {status} So So" in failure.fault.message


async def test_a_message_holds_what_the_destination_said_on_one_harmless_line(
    receiver: Receiver,
) -> None:
    """An escape sequence would do what it likes with the terminal of whoever reads it."""
    receiver.answers(answer(503, "closed,\n\tcome \x1b[31mback \u202elater"))

    failure = await fail(receiver.url)

    assert failure.fault.message.endswith("503 Service Unavailable: closed, come  [31mback  later")


async def test_the_destinations_wait_is_honoured_as_seconds_and_as_a_date(
    receiver: Receiver,
) -> None:
    clock = FakeClock()
    receiver.answers(
        answer(429, retry_after="30"),
        answer(503, retry_after="Thu, 01 Jan 2026 12:01:00 GMT"),
        answer(503, retry_after="Sun, 06 Nov 1994 08:49:37 GMT"),
        answer(429, retry_after="99999999999"),
        answer(503, retry_after="when it suits us"),
    )

    async with transport_to(receiver.url, clock=clock) as transport:
        outcomes = [(await transport.send([leased()]))[0] for _ in range(5)]

    assert [getattr(one, "retry_after", "none") for one in outcomes] == [
        timedelta(seconds=30),
        timedelta(seconds=60),
        timedelta(seconds=1),
        timedelta(hours=24),
        None,
    ]


async def test_retry_on_status_takes_the_place_of_the_table(receiver: Receiver) -> None:
    receiver.answers(answer(404), answer(503), answer(503))

    listed = await fail(receiver.url, retry_on_status={404})
    unlisted = await fail(receiver.url, retry_on_status={404})
    never = await fail(receiver.url, retry_on_status={})

    assert [one.nature for one in (listed, unlisted, never)] == [
        Nature.TRANSIENT,
        Nature.TERMINAL,
        Nature.TERMINAL,
    ]


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    async with receiving() as elsewhere:
        receiver.answers(answer(307, location=f"{elsewhere.url}/{SECRET}"))

        failure = await fail(receiver.url)

        assert elsewhere.requests == []
    assert failure.nature is Nature.TERMINAL
    assert "points to http://127.0.0.1; redirects are not followed" in failure.fault.message
    assert SECRET not in failure.fault.message


async def test_a_cookie_is_not_kept(receiver: Receiver) -> None:
    receiver.answers(answer(200, set_cookie="session=1"))
    url = receiver.url.replace("127.0.0.1", "shop.example.com")

    async with transport_to(url, resolver=FakeResolver(("127.0.0.1",))) as transport:
        await transport.send([leased()])
        await transport.send([leased()])

    assert "cookie" not in receiver.requests[1].headers


@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_without_end_is_cut_and_its_status_counts(
    receiver: Receiver, status: int
) -> None:
    receiver.answers(endless(status))

    outcome = await send(receiver.url)

    if status == 200:
        assert outcome == Succeeded()
    else:
        fault = getattr(outcome, "fault", None)
        assert fault is not None
        assert fault.rule == "status 500"
        assert len(fault.message) < 2_000


async def test_no_more_of_an_answer_is_read_than_the_limit(receiver: Receiver) -> None:
    """What is longer costs its connection; what is not is read to its end, and keeps it."""
    long = "x" * 200_000
    receiver.answers(answer(200, long), answer(200, long), answer(200, long), answer(200, long))

    async with transport_to(receiver.url, response_limit=2**12) as transport:
        await transport.send([leased()])
        await transport.send([leased()])
    cut = receiver.connections
    async with transport_to(receiver.url, response_limit=2**18) as transport:
        await transport.send([leased()])
        await transport.send([leased()])

    assert cut == 2
    assert receiver.connections - cut == 1


async def test_a_packed_answer_is_not_unpacked(receiver: Receiver) -> None:
    """A few kilobytes can unpack to gigabytes."""
    bomb = gzip.compress(b"\0" * 10_000_000)
    receiver.answers(bytes_answer(500, bomb, content_encoding="gzip"))

    failure = await fail(receiver.url)

    assert failure.fault.message.endswith("answered 500 Internal Server Error")


async def test_a_port_where_nobody_listens_is_transient() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"

        failure = await fail(f"http://{host}/{SECRET}")

    assert failure.nature is Nature.TRANSIENT
    assert failure.fault.rule == "network: ConnectionRefusedError"
    assert failure.fault.code == "ECONNREFUSED"
    assert failure.fault.message.startswith(f"{host} cannot be reached")
    assert SECRET not in str(failure)


async def test_a_name_that_does_not_exist_is_transient() -> None:
    """Name servers have outages too."""
    failure = await fail("http://nowhere.invalid/hooks")

    assert failure.nature is Nature.TRANSIENT
    assert failure.fault.rule == "network: gaierror"
    assert failure.fault.message.startswith("The name of nowhere.invalid has no address")


async def test_a_host_that_lets_nobody_in_is_given_up_after_the_connect_timeout() -> None:
    async with full_backlog() as url:
        failure = await fail(f"{url}/hooks?token={SECRET}", connect_timeout="50ms")

    assert failure.nature is Nature.TRANSIENT
    assert failure.fault.rule == "network: ConnectionTimeoutError"
    assert failure.fault.message.endswith("within 50ms.")
    assert SECRET not in str(failure)


@pytest.mark.parametrize(
    ("answered", "rule"),
    [
        (b"", "network: ServerDisconnectedError"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", "network: ClientPayloadError"),
        (b"220 smtp.example.com ESMTP\r\n", "network: ClientResponseError"),
    ],
    ids=["no-answer", "half-an-answer", "not-http"],
)
async def test_less_than_an_answer_is_transient(answered: bytes, rule: str) -> None:
    async with answering_bytes(answered) as url:
        failure = await fail(f"{url}/{SECRET}")

    assert failure.nature is Nature.TRANSIENT
    assert failure.fault.rule == rule
    assert SECRET not in str(failure)


async def test_a_connection_that_is_reset_is_transient() -> None:
    async with answering_bytes(b"", resets=True) as url:
        failure = await fail(f"{url}/{SECRET}")

    assert failure.nature is Nature.TRANSIENT
    assert failure.fault.code == "ECONNRESET"
    assert "broke: Connection reset by peer" in failure.fault.message
    assert SECRET not in str(failure)


async def test_half_of_a_success_is_none_but_half_of_a_refusal_is_one() -> None:
    half = b"HTTP/1.1 %b\r\ncontent-length: 100\r\n\r\nsorry"
    async with answering_bytes(half % b"202 Accepted") as url:
        doubtful = await fail(url)
    async with answering_bytes(half % b"404 Not Found") as url:
        clear = await fail(url)

    assert doubtful.nature is Nature.TRANSIENT
    assert clear.nature is Nature.TERMINAL
    assert clear.fault.message.endswith("404 Not Found: sorry")


async def test_the_destination_may_know_better_about_a_network_error() -> None:
    terms = Terms(terminal=(ConnectionRefusedError,))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

        async with transport_to(url, terms=terms) as transport:
            (outcome,) = await transport.send([leased()])

    assert getattr(outcome, "nature", None) is Nature.TERMINAL


@pytest.mark.parametrize(
    "auth",
    [Bearer(SECRET), Basic("ann", SECRET), ApiKey("x-api-key", SECRET)],
    ids=["bearer", "basic", "key"],
)
async def test_a_destination_that_repeats_our_secrets_does_not_make_us_keep_them(
    receiver: Receiver, auth: Bearer | Basic | ApiKey
) -> None:
    key = "whsec_" + "c2lnbmluZy1rZXktdGhhdC1pcy1zZWNyZXQ="
    said = (
        f"bad {auth.value} for {SECRET}, {key} and {key.removeprefix('whsec_')}; ?token=q-{SECRET}"
    )
    receiver.answers(answer(401, said, reason=f"No {auth.value}"))

    failure = await fail(
        f"{receiver.url}/T0/{SECRET}?token=q-{SECRET}",
        auth=auth,
        signing_keys=key,
        headers={"x-other": f"o-{SECRET}"},
    )

    assert failure.fault.code == "401"
    assert "[redacted]" in failure.fault.message
    for hidden in (SECRET, auth.value, key, key.removeprefix("whsec_")):
        assert hidden not in str(failure)


async def test_connections_are_used_again(receiver: Receiver) -> None:
    receiver.answers(*[answer(status, "some words") for status in (200, 500, 404, 429, 202)])

    async with transport_to(receiver.url) as transport:
        for _ in range(6):
            await transport.send([leased()])

    assert len(receiver.requests) == 6
    assert receiver.connections == 1


async def test_there_are_never_more_connections_than_allowed(receiver: Receiver) -> None:
    async with transport_to(receiver.url, connections=2) as transport:
        await asyncio.gather(*(transport.send([leased(number=n)]) for n in range(1, 9)))

    assert len(receiver.requests) == 8
    assert receiver.connections <= 2
    assert receiver.most_at_once <= 2


async def test_a_transport_that_was_closed_can_send_again(receiver: Receiver) -> None:
    async with transport_to(receiver.url) as transport:
        await transport.send([leased()])
        await transport.close()
        outcome = await transport.send([leased()])

    assert outcome == [Succeeded()]
    assert receiver.connections == 2
