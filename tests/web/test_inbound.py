"""Other people's webhooks: who is let in, as what event, and who is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook

from redrive import Redrive
from redrive.errors import ConfigurationError, StoreUnavailableError
from redrive.inbound import Message, read_source
from redrive.model.event import Event, Receipt
from redrive.testing import FakeClock
from redrive.web.application import make_asgi
from tests.web.client import Answer, Client

WHO = "ada"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEXT_KEY = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = b'{"type": "invoice.paid", "id": "evt_1", "amount": 250}'


class Way:
    """A server, and a sender before its door."""

    def __init__(self, app: Redrive, clock: FakeClock) -> None:
        self.app = app
        self.clock = clock
        self.asgi = make_asgi(
            app,
            hosts=("*",),
            login=True,
            clock=clock,
            redaction=app.settings.redaction,
            payload_limit=app.settings.payload_limit,
        )

    async def source(self, name: str, **document: object) -> None:
        await self.app.operations.save_source(name, document, by=WHO)
        self.clock.advance("1s")  # the door looks once a second

    async def send(
        self,
        name: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        raw: tuple[tuple[bytes, bytes], ...] = (),
    ) -> Answer:
        return await Client(self.asgi).send(
            "POST", f"/in/{name}", body=body, headers=headers, raw=raw
        )

    async def events(self) -> list[Event[Any]]:
        return [one.event for one in await self.app.log.read()]


@pytest.fixture
async def way(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Way]:
    monkeypatch.setenv("SENDER_KEY", KEY)
    monkeypatch.setenv("NEXT_KEY", NEXT_KEY)
    monkeypatch.setenv("SENDER_SECRET", "It's a Secret to Everybody")
    async with Redrive("memory://", payload_limit=10_000) as app:
        yield Way(app, FakeClock(NOW))


def standard(
    body: bytes = BODY, *, message_id: str = "msg_1", at: datetime = NOW, key: str = KEY
) -> dict[str, str]:
    """The headers that the senders' own library makes."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(key).sign(message_id, at, body.decode()),
    }


def stripe(body: bytes = BODY, *, at: datetime = NOW, secret: str = KEY) -> dict[str, str]:
    """The header as Stripe's documentation has it: https://docs.stripe.com/webhooks/signature."""
    seconds = int(at.timestamp())
    digest = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256)
    return {"stripe-signature": f"t={seconds},v1={digest.hexdigest()},v0=6ffbb59b2300aae63f"}


GITHUB_BODY = b"Hello, World!"
GITHUB = {
    "x-hub-signature-256": "sha256="
    "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    "x-github-event": "push",
    "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
}
"""The example of GitHub's documentation, "Validating webhook deliveries"."""


async def test_what_a_sender_of_standard_webhooks_has_signed_is_published(way: Way) -> None:
    await way.source("billing", kind="standard_webhooks", secrets="env:SENDER_KEY")

    answer = await way.send("billing", BODY, standard())

    [event] = await way.events()
    assert (answer.status, answer.json) == (200, {"event_id": event.id, "is_duplicate": False})
    assert (event.type, event.source) == ("billing.invoice.paid", "inbound:billing")
    assert event.idempotency_key == "msg_1"
    assert event.payload == msgspec.json.decode(BODY)


async def test_what_github_has_signed_is_published(way: Way) -> None:
    await way.source(
        "github",
        kind="github",
        secrets="env:SENDER_SECRET",
        body="text",
        headers=["X-GitHub-Event"],
    )

    answer = await way.send("github", GITHUB_BODY, GITHUB)

    [event] = await way.events()
    assert answer.status == 200
    assert (event.type, event.headers) == ("github.push", {"x-github-event": "push"})
    assert event.idempotency_key == GITHUB["x-github-delivery"]
    assert event.payload == "Hello, World!"


async def test_what_stripe_has_signed_is_published(way: Way) -> None:
    await way.source("stripe", kind="stripe", secrets="env:SENDER_KEY")

    answer = await way.send("stripe", BODY, stripe())

    [event] = await way.events()
    assert answer.status == 200
    assert (event.type, event.idempotency_key) == ("stripe.invoice.paid", "evt_1")


async def test_a_scheme_can_be_described(way: Way) -> None:
    """This one is Slack's."""
    await way.source(
        "slack",
        kind="hmac",
        secrets="env:SENDER_SECRET",
        signature_header="X-Slack-Signature",
        prefix="v0=",
        signed="v0:{timestamp}:{body}",
        timestamp_header="X-Slack-Request-Timestamp",
        tolerance="1m",
    )
    seconds = str(int(NOW.timestamp()))
    digest = hmac.new(
        b"It's a Secret to Everybody", f"v0:{seconds}:".encode() + BODY, hashlib.sha256
    )
    headers = {
        "x-slack-signature": f"v0={digest.hexdigest()}",
        "x-slack-request-timestamp": seconds,
    }

    answer = await way.send("slack", BODY, headers)
    way.clock.advance("1m")
    late = await way.send("slack", BODY, headers)

    assert (answer.status, late.status) == (200, 401)
    assert [one.type for one in await way.events()] == ["slack.received"]


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
async def test_an_hmac_may_be_of_any_usual_kind_and_sign_the_id(way: Way, algorithm: str) -> None:
    await way.source(
        "shop",
        kind="hmac",
        secrets="env:SENDER_SECRET",
        signature_header="x-shop-hmac",
        algorithm=algorithm,
        encoding="base64",
        signed="{body}.{id}",
        id_header="x-shop-id",
    )
    digest = hmac.digest(b"It's a Secret to Everybody", BODY + b".7", algorithm)
    headers = {"x-shop-hmac": base64.b64encode(digest).decode(), "x-shop-id": "7"}

    answer = await way.send("shop", BODY, headers)
    other = await way.send("shop", BODY, {**headers, "x-shop-id": "8"})

    assert (answer.status, other.status) == (200, 401)
    assert [one.idempotency_key for one in await way.events()] == ["7"]


async def test_what_nobody_signs_is_let_in_only_by_the_name_of_it(way: Way) -> None:
    with pytest.raises(ConfigurationError, match=r"secrets is missing"):
        await way.source("sensors", kind="hmac", signature_header="x-signature")
    with pytest.raises(ConfigurationError, match=r'kind = "open"'):
        await way.source("sensors", secrets="env:SENDER_KEY")
    await way.source("sensors", kind="open", id_header="x-id")

    answer = await way.send("sensors", BODY, {"x-id": "1"})

    assert answer.status == 200
    assert [one.idempotency_key for one in await way.events()] == ["1"]


def refusals() -> Iterator[Any]:
    right = standard()
    signature = right["webhook-signature"]
    altered = f"{signature[:-6]}AAAAA="
    yield pytest.param(BODY.replace(b"250", b"251"), right, id="body-altered")
    yield pytest.param(BODY, {**right, "webhook-id": "msg_2"}, id="id-altered")
    later = str(int(NOW.timestamp()) + 1)
    yield pytest.param(BODY, {**right, "webhook-timestamp": later}, id="time-altered")
    yield pytest.param(BODY, {**right, "webhook-signature": altered}, id="signature-altered")
    yield pytest.param(BODY, {**right, "webhook-signature": f"v2,{signature}"}, id="other-version")
    yield pytest.param(BODY, {**right, "webhook-signature": "né"}, id="no-signature-at-all")
    yield pytest.param(BODY, {**right, "webhook-timestamp": "now"}, id="no-time")
    for name in right:
        lacking = {key: value for key, value in right.items() if key != name}
        yield pytest.param(BODY, lacking, id=f"without-{name}")
    yield pytest.param(BODY, standard(key=NEXT_KEY), id="other-key")
    yield pytest.param(BODY, standard(at=NOW - timedelta(minutes=6)), id="late")
    yield pytest.param(BODY, standard(at=NOW + timedelta(minutes=6)), id="from-the-future")


@pytest.mark.parametrize(("body", "headers"), list(refusals()))
async def test_what_is_altered_late_or_not_signed_is_refused_without_a_hint(
    way: Way, body: bytes, headers: dict[str, str]
) -> None:
    await way.source("billing", kind="standard_webhooks", secrets="env:SENDER_KEY")

    answer = await way.send("billing", body, headers)

    assert answer.status == 401
    assert answer.json["detail"] == "This is not let in."
    assert await way.events() == []


async def test_a_signature_that_stands_twice_is_none(way: Way) -> None:
    await way.source("billing", kind="standard_webhooks", secrets="env:SENDER_KEY")

    answer = await way.send("billing", BODY, standard(), raw=((b"webhook-signature", b"v1,AAAA"),))

    assert answer.status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {**stripe(), "stripe-signature": stripe()["stripe-signature"].replace("v1", "v0")},
        {"stripe-signature": "t=1,t=2,v1=00"},
        stripe(at=NOW - timedelta(minutes=6)),
        stripe(secret=NEXT_KEY),
        {},
    ],
    ids=["old-version", "two-times", "late", "other-secret", "none"],
)
async def test_what_stripe_has_not_signed_is_refused(way: Way, headers: dict[str, str]) -> None:
    await way.source("stripe", kind="stripe", secrets="env:SENDER_KEY")

    assert (await way.send("stripe", BODY, headers)).status == 401


@pytest.mark.parametrize("signature", ["", "sha1=00", "sha256=", "sha256=00", "757107ea"])
async def test_what_github_has_not_signed_is_refused(way: Way, signature: str) -> None:
    await way.source("github", kind="github", secrets="env:SENDER_SECRET", body="text")

    answer = await way.send("github", GITHUB_BODY, {**GITHUB, "x-hub-signature-256": signature})

    assert answer.status == 401


async def test_two_secrets_count_while_one_is_changed(way: Way) -> None:
    await way.source(
        "billing", kind="standard_webhooks", secrets=["env:NEXT_KEY", "env:SENDER_KEY"]
    )

    old = await way.send("billing", BODY, standard())
    new = await way.send("billing", BODY, standard(key=NEXT_KEY, message_id="msg_2"))

    assert (old.status, new.status) == (200, 200)


async def test_a_message_that_is_sent_again_is_stored_once(way: Way) -> None:
    await way.source("billing", kind="standard_webhooks", secrets="env:SENDER_KEY")

    first = await way.send("billing", BODY, standard())
    again = await way.send("billing", BODY, standard(at=NOW + timedelta(seconds=90)))

    assert (again.status, again.json) == (200, {**first.json, "is_duplicate": True})
    assert len(await way.events()) == 1


async def test_a_message_of_which_the_sender_tells_more_the_second_time_is_the_same(
    way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    await way.source("stripe", kind="stripe", secrets="env:SENDER_KEY")
    bodies = [
        b'{"id":"evt_1","type":"invoice.paid","pending_webhooks":%d}' % count for count in (2, 1)
    ]

    first, again = [await way.send("stripe", body, stripe(body)) for body in bodies]

    assert (again.status, again.json) == (200, {**first.json, "is_duplicate": True})
    [event] = await way.events()
    assert event.payload["pending_webhooks"] == 2
    assert f"the message evt_1 again, with another content; event {event.id}" in caplog.text


async def test_a_crash_before_the_answer_stores_once_when_the_sender_repeats(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    await way.source("billing", kind="standard_webhooks", secrets="env:SENDER_KEY")
    publish = way.app.publish

    async def crash(*given: Any, **attributes: Any) -> Receipt:  # noqa: ANN401 - as `publish`
        await publish(*given, **attributes)
        raise SystemExit

    monkeypatch.setattr(way.app, "publish", crash)
    crashing = Way(way.app, way.clock)
    with pytest.raises(SystemExit):
        await crashing.send("billing", BODY, standard())
    monkeypatch.setattr(way.app, "publish", publish)
    answer = await Way(way.app, way.clock).send("billing", BODY, standard())

    assert (answer.status, answer.json["is_duplicate"]) == (200, True)
    assert len(await way.events()) == 1


async def test_what_is_not_published_is_not_answered_as_if_it_were(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    await way.source("billing", kind="standard_webhooks", secrets="env:SENDER_KEY")

    async def fail(*_: Any, **__: Any) -> Receipt:  # noqa: ANN401 - as `publish`
        raise StoreUnavailableError("The disk is gone.")

    monkeypatch.setattr(way.app, "publish", fail)
    answer = await Way(way.app, way.clock).send("billing", BODY, standard())

    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_the_same_content_within_a_window_is_stored_once_where_that_is_asked(
    way: Way,
) -> None:
    await way.source(
        "github", kind="github", secrets="env:SENDER_SECRET", body="text", unique_for="1h"
    )

    await way.send("github", GITHUB_BODY, GITHUB)
    replayed = await way.send("github", GITHUB_BODY, {**GITHUB, "x-github-delivery": "another"})

    assert (replayed.status, replayed.json["is_duplicate"]) == (200, True)
    assert len(await way.events()) == 1


async def test_an_oversized_body_is_refused(way: Way) -> None:
    await way.source("billing", kind="standard_webhooks", secrets="env:SENDER_KEY")
    body = b'{"text": "%s"}' % (b"x" * 10_000)

    answer = await way.send("billing", body, standard(body))

    assert answer.status == 413
    assert await way.events() == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 300 + b"]" * 300])
async def test_a_genuine_body_that_cannot_be_read_is_refused(way: Way, body: bytes) -> None:
    await way.source("sensors", kind="open")

    answer = await way.send("sensors", body)

    assert answer.status == 400
    assert await way.events() == []


async def test_a_template_names_the_event_its_key_and_its_tenant(way: Way) -> None:
    await way.source(
        "shop",
        kind="open",
        event="{{ source }}.{{ headers['x-topic'] }}",
        key="{{ payload.order }}",
        tenant="{{ payload.customer | lower }}",
    )

    await way.send("shop", b'{"order": 42, "customer": "ACME"}', {"x-topic": "orders/paid"})

    [event] = await way.events()
    assert (event.type, event.key, event.tenant) == ("shop.orders_paid", "42", "acme")


async def test_what_cannot_be_named_is_published_and_says_so(way: Way) -> None:
    """Nobody would send it again."""
    await way.source("shop", kind="open", event="{{ payload.topic }}", key="{{ payload.order }}")

    answer = await way.send("shop", b'{"customer": "ACME"}')

    [event] = await way.events()
    assert answer.status == 200
    assert (event.type, event.key) == ("shop.received", None)
    assert "event: " in event.headers["redrive-inbound-note"]
    assert "key: " in event.headers["redrive-inbound-note"]


async def test_a_source_that_is_disabled_or_deleted_is_not_there(way: Way) -> None:
    await way.source("sensors", kind="open")
    await way.source("meters", kind="open", enabled=False)

    disabled, unknown = await way.send("meters", BODY), await way.send("nobody", BODY)
    await way.app.operations.delete_source("sensors", by=WHO)
    way.clock.advance("1s")
    deleted = await way.send("sensors", BODY)

    assert [one.status for one in (disabled, unknown, deleted)] == [404, 404, 404]
    assert disabled.body == unknown.body


async def test_a_source_without_its_secret_says_to_come_again(
    way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    await way.source("billing", kind="github", secrets="env:NOT_THERE")

    answer = await way.send("billing", BODY)

    assert (answer.status, answer.headers["retry-after"]) == (503, "30")
    assert "NOT_THERE" not in answer.body.decode()
    assert "env:NOT_THERE" in caplog.text


async def test_the_door_alone_can_be_mounted(way: Way) -> None:
    await way.source("sensors", kind="open")
    door = Client(way.app.asgi(only_inbound=True))

    taken = await door.send("POST", "/in/sensors", body=BODY)
    alive = await door.get("/healthz")
    others = [await door.get(path) for path in ("/", "/api/v1/status", "/docs", "/in/sensors")]

    assert (taken.status, alive.status) == (200, 200)
    assert [one.status for one in others] == [404, 404, 404, 405]


async def test_sources_have_versions_and_an_audit_log(way: Way) -> None:
    await way.source("github", kind="github", secrets="env:SENDER_SECRET")

    altered = await way.app.operations.alter_source(
        "github", {"unique_for": "1d", "secrets": ["env:NEXT_KEY"]}, by=WHO, why="a new secret"
    )

    assert altered.version == 2
    assert [one.name for one in await way.app.operations.sources()] == ["github"]
    latest, first = await way.app.operations.audit()
    assert (latest.why, first.detail) == ("a new secret", "source github: new")
    assert 'unique_for: nothing → "1d"' in latest.detail
    with pytest.raises(ConfigurationError, match="unique_for"):
        await way.app.operations.alter_source("github", {"unique_for": "soon"}, by=WHO)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"kind": "github", "secrets": "hunter2"}, "not said by reference"),
        ({"kind": "github", "secrets": []}, "secrets is missing"),
        ({"kind": "github", "secrets": "env:A", "tolerance": "1m"}, "no key of a source"),
        ({"kind": "gitlab"}, "one of standard_webhooks, github"),
        ({"kind": "hmac", "secrets": "env:A"}, "signature_header is missing"),
        ({"kind": "hmac", "secrets": "env:A", "tolerance": "1m"}, "timestamp_header as well"),
        ({"kind": "open", "headers": "x-a"}, "headers is 'x-a'"),
        ({"kind": "open", "body": "form"}, "one of json, text"),
        ({"kind": "open", "event": "{{ nobody }}"}, "nobody"),
        ({"kind": "open", "key": 7}, "key is 7"),
        ({"kind": "open", "enabled": "no"}, "write true or false"),
    ],
)
def test_a_mistake_in_a_document_is_named(document: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        read_source("shop", document, resolve=str)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"timestamp_header": "x-time", "signed": "{body}"}, "go together"),
        ({"signed": "{timestamp}{body}"}, "go together"),
        ({"signed": "{id}{body}"}, "write id_header"),
        ({"signed": "body"}, "in it once"),
        ({"algorithm": "md5"}, "one of sha256"),
        ({"encoding": "base32"}, "one of hex"),
        ({"prefix": 7}, "prefix is 7"),
        ({"id_header": "x y"}, "id_header is 'x y'"),
    ],
)
def test_a_mistake_in_a_scheme_is_named(keys: dict[str, Any], complaint: str) -> None:
    document = {"kind": "hmac", "secrets": "env:A", "signature_header": "x-signature", **keys}

    with pytest.raises(ConfigurationError, match=complaint):
        read_source("shop", document, resolve=str)


def test_a_name_that_fits_no_address_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no part of an address"):
        read_source("a/b", {"kind": "open"}, resolve=str)


def test_a_time_is_signed_where_its_header_is_named() -> None:
    document = {
        "kind": "hmac",
        "secrets": "env:A",
        "signature_header": "x-signature",
        "timestamp_header": "x-time",
    }
    source = read_source("shop", document, resolve=lambda _: "secret")
    at = str(int(NOW.timestamp()))
    digest = hmac.new(b"secret", f"{at}.".encode() + BODY, hashlib.sha256).hexdigest()
    message = Message.of([("X-Signature", digest), ("X-Time", at)], BODY)

    assert source.signature.is_genuine(message, NOW)
    assert not source.signature.is_genuine(message, NOW + timedelta(minutes=5, seconds=1))
