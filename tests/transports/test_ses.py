"""Amazon SES: mail by signed requests, against moto and against a server with a script."""

from __future__ import annotations

import base64
import email
import json
from collections.abc import AsyncIterator, Sequence
from email.message import Message
from typing import Any

import msgspec
import pytest
from aiohttp import web
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.request import Request
from moto.ses.models import ses_backends
from moto.sesv2.responses import SESV2Response

from redrive import Redrive, Retry
from redrive.errors import ConfigurationError
from redrive.model.outcome import Faulted, Nature, Succeeded
from redrive.transport import Way
from redrive.transports.http.options import LineOptions
from redrive.transports.mail import MailOptions
from redrive.transports.ses import SesOptions, ses
from tests.conformance.transports import RemoteWayConformance, Site
from tests.docs.pages import ROOT, table_of
from tests.http.receiver import Received, Receiver, answer, receiving
from tests.transports.test_sinks import fail, send, told

HERE = ("127.0.0.1",)
REGION = "eu-central-1"
SECRET = "a-secret-key-that-nobody-may-see"  # noqa: S105 - of the tests
TWICE = Retry(max_attempts=2, base="0s", cap="0s", jitter="none")
ORDER: dict[str, Any] = {
    "sender": "Shop <shop@example.com>",
    "to": "ann@example.com",
    "subject": "Order {{ payload.order }}",
    "text": "Thank you.",
}


def way(url: str, allow_networks: Sequence[str] = HERE, **options: Any) -> Way:  # noqa: ANN401 - as `ses`
    keys = {"access_key": "AKIDEXAMPLE", "secret_key": SECRET, **ORDER}
    return ses(REGION, endpoint=url, allow_networks=allow_networks, **{**keys, **options})


def said(request: Received) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(request.body)
    return read


def message(request: Received) -> Message:
    return email.message_from_bytes(base64.b64decode(said(request)["Content"]["Raw"]["Data"]))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        running.always(answer(200, '{"MessageId": "1"}'))
        yield running


async def moto(request: web.Request) -> web.StreamResponse:
    """Answer as moto does, which stands for SES."""
    url = f"https://email.{REGION}.amazonaws.com{request.path}"
    headers = {**request.headers, "Host": f"email.{REGION}.amazonaws.com"}
    asked = Request.from_primitives("POST", url, headers, await request.read())
    status, told_headers, body = SESV2Response.dispatch(asked, url, asked.headers)
    kept = {name: str(value) for name, value in told_headers.items() if name.startswith("x-amzn")}
    return web.Response(status=status, body=body, headers=kept)


class SesSite(Site):
    secrets = (SECRET,)
    bad = b'{"number":42}'

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.port = int(receiver.url.rpartition(":")[2])

    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return way(f"http://{host}:{port}", allow_networks)

    async def arrived(self) -> list[str]:
        found = [message(one)["Message-ID"] for one in self.receiver.requests]
        return [one.removeprefix("<").partition(".")[0] for one in found]


class TestSes(RemoteWayConformance):
    @pytest.fixture
    def site(self, receiver: Receiver) -> Site:
        return SesSite(receiver)


async def test_a_mail_reaches_ses_from_a_sender_that_it_knows(receiver: Receiver) -> None:
    backend = ses_backends[DEFAULT_ACCOUNT_ID][REGION]
    backend.verify_email_identity("shop@example.com")
    receiver.always(moto)

    taken = await send(way(receiver.url, cc="bob@example.com"))
    refused = await fail(way(receiver.url, sender="stranger@example.org"))

    [mail] = backend.sent_messages
    assert taken == [Succeeded()]
    assert email.message_from_string(mail.raw_data)["Subject"] == "Order 42"
    assert {"ann@example.com", "bob@example.com"} <= set(mail.destinations)
    assert (refused.nature, refused.fault.rule) == (Nature.TERMINAL, "SES MessageRejected")
    assert "stranger@example.org" in refused.fault.message


async def test_a_request_is_signed_and_says_who_gets_the_mail(receiver: Receiver) -> None:
    there = way(
        receiver.url,
        to=["ann@example.com", "bob@example.com"],
        bcc="eve@example.com",
        configuration_set="shop",
        session_token="a-token",  # noqa: S106 - of the tests
    )

    await send(there)

    [request] = receiver.requests
    assert (request.method, request.path) == ("POST", "/v2/email/outbound-emails")
    authorization = request.headers["authorization"]
    assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert f"/{REGION}/ses/aws4_request" in authorization
    assert request.headers["x-amz-security-token"] == "a-token"
    assert said(request)["FromEmailAddress"] == "shop@example.com"
    assert said(request)["ConfigurationSetName"] == "shop"
    assert said(request)["Destination"] == {
        "ToAddresses": ["ann@example.com", "bob@example.com", "eve@example.com"]
    }
    assert message(request)["To"] == "ann@example.com, bob@example.com"
    assert message(request)["Bcc"] is None


@pytest.mark.parametrize(
    ("status", "name", "nature", "rule"),
    [
        (429, "TooManyRequestsException", Nature.THROTTLED, "SES TooManyRequestsException"),
        (400, "ThrottlingException", Nature.THROTTLED, "SES ThrottlingException"),
        (400, "Throttling", Nature.THROTTLED, "SES Throttling"),
        (400, "LimitExceededException", Nature.THROTTLED, "SES LimitExceededException"),
        (503, "ServiceUnavailable", Nature.TRANSIENT, "SES ServiceUnavailable"),
        (500, "", Nature.TRANSIENT, "status 500"),
        (
            400,
            "MailFromDomainNotVerifiedException",
            Nature.TERMINAL,
            "SES MailFromDomainNotVerifiedException",
        ),
        (400, "MessageRejected", Nature.TERMINAL, "SES MessageRejected"),
        (400, "BadRequestException", Nature.TERMINAL, "status 400"),
        (403, "InvalidClientTokenId", Nature.TERMINAL, "status 403"),
    ],
)
async def test_an_error_of_ses_is_classified_by_its_name(
    status: int, name: str, nature: Nature, rule: str, receiver: Receiver
) -> None:
    named = f"{name}:http://internal.amazon.com/coral/"
    receiver.always(answer(status, f'{{"message": "no {SECRET}"}}', x_amzn_errortype=named))
    by_header = await fail(way(receiver.url))
    receiver.always(answer(status, json.dumps({"__type": f"com.amazonaws#{name}"})))
    by_body = await fail(way(receiver.url))

    assert (by_header.nature, by_header.fault.rule) == (nature, rule)
    assert (by_body.nature, by_body.fault.rule) == (nature, rule)
    assert SECRET not in msgspec.json.encode(by_header).decode()


async def test_an_account_that_may_not_send_stops_the_destination(receiver: Receiver) -> None:
    receiver.always(answer(400, "{}", x_amzn_errortype="SendingPausedException"))

    outcome = await fail(way(receiver.url))

    assert outcome.nature is Nature.TERMINAL
    assert "answered 400" in outcome.pause


async def test_nothing_is_lost_through_an_outage_a_dead_letter_and_a_replay(
    receiver: Receiver,
) -> None:
    app = Redrive("memory://")
    app.destination("mail", "order.*", transport=way(receiver.url), retry=TWICE, breaker=None)

    async with app:
        first = await app.publish("order.paid", {"order": 1})
        flowing = await app.drain()
        receiver.always(answer(503, x_amzn_errortype="ServiceUnavailable"))
        second = await app.publish("order.paid", {"order": 2})
        down = await app.drain()
        receiver.always(answer(200, "{}"))
        letters = (await app.operations.dead_letters()).deliveries
        await app.operations.replay([one.id for one in letters], by="ann", why="it is back")
        back = await app.drain()

    assert (flowing.delivered, down.retried, down.failed, back.delivered) == (1, 1, 1, 1)
    [fault] = [one.fault for one in letters]
    assert fault is not None
    assert fault.rule == "SES ServiceUnavailable"
    sent = await SesSite(receiver).arrived()
    assert sent == [first.event_id, *[second.event_id] * 3]


async def test_more_recipients_than_ses_takes_are_refused_before_it_is_asked(
    receiver: Receiver,
) -> None:
    many = [f"a{number}@example.com" for number in range(51)]

    outcome = await fail(way(receiver.url, to=many))

    assert (outcome.nature, outcome.fault.rule) == (Nature.TERMINAL, "mail does not fit")
    assert receiver.requests == []


async def test_without_a_key_it_is_whoever_the_environment_says(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    there = ses(REGION, endpoint=receiver.url, allow_networks=HERE, **ORDER)

    nobody = await fail(there, told())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOFTHEENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    taken = await send(there, told())

    assert isinstance(nobody, Faulted)
    assert (nobody.nature, nobody.fault.rule) == (Nature.TRANSIENT, "no credentials")
    assert taken == [Succeeded()]
    assert "AKIDOFTHEENVIRONMENT/" in receiver.requests[0].headers["authorization"]


@pytest.mark.parametrize(
    ("region", "options", "complaint"),
    [
        ("Frankfurt", {}, "one of AWS"),
        (REGION, {"sender": "shop"}, "sender"),
        (REGION, {"access_key": "A"}, "secret_key of SES is missing"),
        (REGION, {"secret_key": "A"}, "access_key of SES is missing"),
        (REGION, {"session_token": "A"}, "access_key of SES is missing"),
        (REGION, {"access_key": "A", "secret_key": "b\n"}, "line break"),
        (REGION, {"configuration_set": 7}, "configuration_set is 7"),
        (REGION, {"endpoint": "https://127.0.0.1"}, "loopback"),
        (REGION, {"recipient": "a@b.example"}, "no ses option"),
    ],
)
def test_a_wrong_declaration_is_refused_with_advice(
    region: str, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        ses(region, **{"sender": "shop@example.com", **options})


def test_every_option_is_listed_in_its_guide() -> None:
    listed = table_of(ROOT / "docs" / "guides" / "ses.md", "Options")
    shared = {*MailOptions.__annotations__, *LineOptions.__annotations__}

    assert sorted(listed) == sorted(set(SesOptions.__annotations__) - shared)


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.transports.options.find_spec", lambda _: None)

    with pytest.raises(ConfigurationError, match=r"redrive\[ses\]"):
        ses(REGION, sender="shop@example.com")
