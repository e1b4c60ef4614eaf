"""What goes over the wire: body, headers, identity, signature."""

import base64
from datetime import timedelta
from importlib.metadata import version

import msgspec
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from redrive.clock import SystemClock
from redrive.model.outcome import Succeeded
from redrive.testing import FakeClock
from redrive.transports.http import ApiKey, Basic, Bearer
from tests.http.receiver import Receiver
from tests.http.sending import leased, send, transport_to

OLD = f"whsec_{base64.b64encode(b'o' * 32).decode()}"
NEW = f"whsec_{base64.b64encode(b'n' * 24).decode()}"
FOREIGN = f"whsec_{base64.b64encode(b'f' * 32).decode()}"


async def test_a_payload_is_posted_as_it_was_published(receiver: Receiver) -> None:
    """Decoding and encoding it again would change numbers, order and blanks."""
    payload = b'{ "b": 1.0,  "a": 12345678901234567890 }'

    outcome = await send(f"{receiver.url}/hooks?shop=berlin", leased(payload))

    (request,) = receiver.requests
    assert outcome == Succeeded()
    assert (request.method, request.path) == ("POST", "/hooks?shop=berlin")
    assert request.body == payload


async def test_a_request_says_what_it_is_and_who_sends_it(receiver: Receiver) -> None:
    clock = FakeClock()
    async with transport_to(receiver.url, clock=clock) as transport:
        await transport.send([leased(number=7)])

    (request,) = receiver.requests
    assert request.headers["webhook-id"] == "01890000-0000-7000-8000-000000000007"
    assert request.headers["webhook-timestamp"] == str(int(clock.now().timestamp()))
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == f"redrive/{version('redrive')}"
    assert request.headers["accept-encoding"] == "identity"
    assert "webhook-signature" not in request.headers


async def test_a_request_tells_its_attempt_and_whether_it_is_a_replay(receiver: Receiver) -> None:
    first = leased(number=7)
    again = msgspec.structs.replace(first, attempt=3, cycles=1)
    async with transport_to(receiver.url) as transport:
        await transport.send([first])
        await transport.send([again])
    async with transport_to(receiver.url, batch=2) as transport:
        await transport.send([first, again])

    told = [
        (one.headers["redrive-attempt"], one.headers["redrive-replay"]) for one in receiver.requests
    ]
    assert told == [("1", "false"), ("3", "true"), ("3", "true")]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_the_method_can_be_chosen(receiver: Receiver, method: str) -> None:
    await send(receiver.url, method=method)  # type: ignore[arg-type]  # one of the choices

    assert receiver.requests[0].method == method
    assert receiver.requests[0].body == b'{"order":42}'


async def test_declared_headers_are_sent_and_win_over_the_usual_ones(receiver: Receiver) -> None:
    await send(
        receiver.url, headers={"X-Shop": "berlin", "Content-Type": "application/vnd.shop+json"}
    )

    assert receiver.requests[0].headers["x-shop"] == "berlin"
    assert receiver.requests[0].headers["content-type"] == "application/vnd.shop+json"


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        (Bearer("t0ken"), "authorization", "Bearer t0ken"),
        (Basic("ann", "s3cret"), "authorization", "Basic YW5uOnMzY3JldA=="),
        (ApiKey("X-Api-Key", "k3y"), "x-api-key", "k3y"),
    ],
    ids=["bearer", "basic", "key"],
)
async def test_every_kind_of_auth_is_a_header(
    receiver: Receiver, auth: Bearer | Basic | ApiKey, header: str, value: str
) -> None:
    await send(receiver.url, auth=auth)

    assert receiver.requests[0].headers[header] == value


async def test_the_trace_of_an_event_travels_on_and_nothing_else(receiver: Receiver) -> None:
    await send(receiver.url, leased(Traceparent="00-abc-def-01", secret="hidden"))  # noqa: S106

    assert receiver.requests[0].headers["traceparent"] == "00-abc-def-01"
    assert "secret" not in receiver.requests[0].headers


async def test_which_headers_of_an_event_travel_on_can_be_chosen(receiver: Receiver) -> None:
    await send(receiver.url, leased(baggage="a=b", traceparent="00"), forward_headers=("Baggage",))

    assert receiver.requests[0].headers["baggage"] == "a=b"
    assert "traceparent" not in receiver.requests[0].headers


async def test_a_header_of_an_event_cannot_smuggle_another_one_in(receiver: Receiver) -> None:
    await send(receiver.url, leased(traceparent="00\r\nx-admin: yes"))

    assert "traceparent" not in receiver.requests[0].headers
    assert "x-admin" not in receiver.requests[0].headers


async def test_an_event_can_be_sent_with_what_is_known_of_it(receiver: Receiver) -> None:
    delivery = leased(b'{"order":42}')
    event = msgspec.structs.replace(delivery.event, key="order-42", tenant="acme", source="shop")

    await send(receiver.url, msgspec.structs.replace(delivery, event=event), body="event")

    assert msgspec.json.decode(receiver.requests[0].body) == {
        "id": event.id,
        "type": "order.paid",
        "occurred_at": event.occurred_at.isoformat().replace("+00:00", "Z"),
        "payload": {"order": 42},
        "key": "order-42",
        "tenant": "acme",
        "source": "shop",
    }


async def test_a_body_of_several_megabytes_arrives_whole(receiver: Receiver) -> None:
    """The HTTP library warns of such bodies, and here warnings are errors."""
    payload = b'"' + b"x" * 3_000_000 + b'"'

    outcome = await send(receiver.url, leased(payload))

    assert outcome == Succeeded()
    assert receiver.requests[0].body == payload
    assert receiver.requests[0].headers["content-length"] == str(len(payload))


async def test_a_signature_verifies_with_the_receivers_own_library(receiver: Receiver) -> None:
    await send(receiver.url, leased('{"name":"Zoë"}'.encode()), signing_keys=NEW)

    (request,) = receiver.requests
    assert Webhook(NEW).verify(request.body, dict(request.headers)) == {"name": "Zoë"}
    with pytest.raises(WebhookVerificationError):
        Webhook(FOREIGN).verify(request.body, dict(request.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(request.body + b" ", dict(request.headers))


async def test_while_keys_are_rotated_both_verify(receiver: Receiver) -> None:
    await send(receiver.url, signing_keys=[NEW, OLD])

    (request,) = receiver.requests
    assert len(request.headers["webhook-signature"].split(" ")) == 2
    for key in (NEW, OLD):
        assert Webhook(key).verify(request.body, dict(request.headers)) == {"order": 42}
    with pytest.raises(WebhookVerificationError):
        Webhook(FOREIGN).verify(request.body, dict(request.headers))


async def test_each_try_is_signed_at_its_own_time_under_the_same_id(receiver: Receiver) -> None:
    """An old time stamp would be refused as a replay attack."""
    clock = FakeClock(SystemClock().now() - timedelta(hours=1))
    async with transport_to(receiver.url, clock=clock, signing_keys=NEW) as transport:
        await transport.send([leased()])
        clock.advance("1h")
        await transport.send([leased()])

    first, second = receiver.requests
    assert receiver.ids[0] == receiver.ids[1]
    assert Webhook(NEW).verify(second.body, dict(second.headers)) == {"order": 42}
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(first.body, dict(first.headers))
