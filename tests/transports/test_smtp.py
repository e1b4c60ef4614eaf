"""Mail on the real engine, to a server that answers by script."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from redrive import Redrive, Retry
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError, StoreUnavailableError
from redrive.model.delivery import Delivery
from redrive.model.outcome import Addressees, Faulted, Interrupted, Nature, Succeeded
from redrive.model.settlement import FailureReason
from redrive.policies.terms import Terms
from redrive.transports.smtp import SmtpBlueprint, SmtpOptions, smtp
from tests.conformance.transports import RemoteWayConformance, Site, a_delivery
from tests.docs.pages import ROOT, table_of
from tests.transports.mailbox import Mailbox, a_mailbox

ANN, BOB, EVE = "ann@example.com", "bob@example.com", "eve@example.com"
MAIL: dict[str, Any] = {"to": [ANN, BOB, EVE], "subject": "Your order", "text": "Thank you."}
SECRET = "a-password-that-nobody-may-see"  # noqa: S105 - of the tests
WRONG = "wrong one"


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    async with a_mailbox() as running:
        yield running


def way_to(mailbox: Mailbox, **options: Any) -> SmtpBlueprint:  # noqa: ANN401 - any option
    given = {"starttls": False, "sender": "Shop <shop@example.com>", **options}
    given = {"allow_networks": ("127.0.0.1",), **given}
    return smtp(f"smtp://127.0.0.1:{mailbox.port}", **given)


async def deliver(
    mailbox: Mailbox,
    payload: Mapping[str, Any],
    *,
    attempts: int = 1,
    **options: Any,  # noqa: ANN401
) -> list[Delivery]:
    """Publish a mail, deliver it and return what has failed."""
    app = Redrive("memory://")
    retry = Retry(max_attempts=attempts, base="0s", cap="0s", jitter="none")
    way = way_to(mailbox, **options)
    app.destination("mail", "*", transport=way, retry=retry, breaker=None)
    async with app:
        await app.publish("order.paid", payload)
        await app.drain()
        found = (await app.operations.dead_letters()).deliveries
        return [(await app.operations.show(one.id)).delivery for one in found]


async def test_a_mail_arrives_as_it_was_meant(mailbox: Mailbox, tmp_path: Path) -> None:
    (tmp_path / "bill.pdf").write_bytes(b"%PDF")
    payload = {
        "to": ["Ann <ann@example.com>", {"address": "bob@bücher.example", "name": "Böb"}],
        "cc": "eve@example.com",
        "bcc": "boss@example.com",
        "subject": "Grüße",
        "text": "Danke.\n.\nBis bald",
        "html": "<p>Danke.</p>",
        "reply_to": "help@example.com",
        "unsubscribe": "https://shop.example.com/off?u=1",
        "headers": {"X-Order": "42"},
        "attachments": [{"path": "bill.pdf", "type": "application/pdf"}],
    }

    failed = await deliver(mailbox, payload, attachment_folder=str(tmp_path))

    assert failed == []
    [(recipients, message)] = mailbox.received
    assert recipients == [ANN, "bob@xn--bcher-kva.example", EVE, "boss@example.com"]
    assert str(message["From"]) == "Shop <shop@example.com>"
    assert [one.display_name for one in message["To"].addresses] == ["Ann", "Böb"]
    assert (str(message["Cc"]), message["Bcc"]) == (EVE, None)
    assert (message["Subject"], message["Reply-To"]) == ("Grüße", "help@example.com")
    assert message["List-Unsubscribe"] == "<https://shop.example.com/off?u=1>"
    assert message["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert message["X-Order"] == "42"
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().splitlines() == ["Danke.", ".", "Bis bald"]
    assert html.get_content().strip() == "<p>Danke.</p>"
    [attached] = message.iter_attachments()
    assert (attached.get_filename(), attached.get_content()) == ("bill.pdf", b"%PDF")


async def test_templates_make_the_mail_and_nothing_else_of_the_payload_does(
    mailbox: Mailbox,
) -> None:
    payload = {"email": ANN, "order": 42, "bcc": EVE, "name": "Ann & Co"}

    await deliver(
        mailbox,
        payload,
        to="{{ payload.email }}",
        subject="Order {{ payload.order }}",
        text="Dear {{ payload.name }}",
        html="<p>Dear {{ payload.name | e }}</p>",
    )

    [(recipients, message)] = mailbox.received
    html = message.get_body(("html",))
    assert html is not None
    assert recipients == [ANN]
    assert message["Subject"] == "Order 42"
    assert html.get_content().strip() == "<p>Dear Ann &amp; Co</p>"


@pytest.mark.parametrize("reply", [421, 450, 451, 452, 454, 455, 471])
async def test_every_4yz_is_tried_again(mailbox: Mailbox, reply: int) -> None:
    mailbox.refuse(ANN, f"{reply} not now", f"{reply} not now")

    failed = await deliver(mailbox, {**MAIL, "to": ANN}, attempts=3)

    assert failed == []
    assert [one.recipients for one in mailbox.received] == [[ANN]]


@pytest.mark.parametrize(
    "reply",
    [
        *("500 what", "501 5.5.4 bad", "502 no", "503 5.5.1 order", "504 no", "550 5.1.1 nobody"),
        *("551 5.1.6 moved", "552 5.2.2 full", "553 5.1.3 bad", "554 5.7.1 spam", "571 no"),
    ],
)
async def test_every_5yz_is_for_good(mailbox: Mailbox, reply: str) -> None:
    mailbox.refuse(ANN, reply)

    [letter] = await deliver(mailbox, {**MAIL, "to": ANN}, attempts=3)

    code, _, text = reply.partition(" ")
    enhanced = text.split(" ")[0] if text.startswith("5.") else ""
    assert letter.reason is FailureReason.TERMINAL
    assert letter.fault is not None
    assert letter.fault.rule == f"reply {code} {enhanced}".rstrip()
    assert (letter.fault.error_class, letter.fault.code) == (f"SMTP {code}", enhanced or code)
    assert ANN in letter.fault.message
    assert letter.attempts == 1


@pytest.mark.parametrize("step", ["at_mail", "at_data", "at_greeting"])
@pytest.mark.parametrize(("reply", "delivered"), [("451 4.3.0 later", 1), ("554 5.7.1 never", 0)])
async def test_a_refusal_is_classified_at_every_step(
    mailbox: Mailbox, step: str, reply: str, delivered: int
) -> None:
    getattr(mailbox, step).append(reply)

    failed = await deliver(mailbox, {**MAIL, "to": ANN}, attempts=2)

    assert len(mailbox.received) == delivered
    assert [one.reason for one in failed] == [FailureReason.TERMINAL] * (1 - delivered)


async def test_who_has_accepted_it_does_not_get_it_again(mailbox: Mailbox) -> None:
    mailbox.refuse(BOB, "451 4.2.1 busy", "452 4.2.2 full")
    mailbox.refuse(EVE, "550 5.1.1 nobody")

    [letter] = await deliver(mailbox, MAIL, attempts=5)

    assert [one.recipients for one in mailbox.received] == [[ANN], [BOB]]
    assert mailbox.asked == [ANN, BOB, EVE, BOB, BOB]
    assert letter.reason is FailureReason.TERMINAL
    assert letter.addressees == Addressees(accepted=(ANN, BOB), refused={EVE: "550 5.1.1 nobody"})
    assert letter.fault is not None
    assert letter.fault.rule == "reply 550 5.1.1"
    assert EVE in letter.fault.message
    assert ANN not in letter.fault.message
    assert BOB not in letter.fault.message
    assert len({one.message["Message-ID"] for one in mailbox.received}) == 1
    assert letter.exchange is not None
    assert (letter.exchange.method, letter.exchange.status) == ("MAIL", 550)


async def test_a_replay_asks_only_those_who_have_not_accepted_it(mailbox: Mailbox) -> None:
    app = Redrive("memory://")
    app.destination("mail", "*", transport=way_to(mailbox), breaker=None)
    mailbox.refuse(BOB, "550 5.1.1 nobody")

    async with app:
        await app.publish("order.paid", MAIL)
        await app.drain()
        [letter] = (await app.operations.dead_letters()).deliveries
        await app.operations.replay([letter.id], by="ann", why="bob has a mailbox now")
        tally = await app.drain()

    assert tally.delivered == 1
    assert [one.recipients for one in mailbox.received] == [[ANN, EVE], [BOB]]


async def test_a_farewell_among_the_recipients_refuses_nobody(mailbox: Mailbox) -> None:
    mailbox.refuse(BOB, "421 4.7.0 too many")

    failed = await deliver(mailbox, MAIL, attempts=2)

    assert failed == []
    assert [one.recipients for one in mailbox.received] == [[ANN, BOB, EVE]]


async def test_a_connection_that_was_closed_meanwhile_costs_no_try(mailbox: Mailbox) -> None:
    transport: Any = way_to(mailbox).build(terms=Terms(), clock=SystemClock())
    one = a_delivery(1, msgspec.json.encode(MAIL))

    first = await transport.send([one])
    mailbox.at_mail.append("421 4.4.2 idle for too long")
    second = await transport.send([one])
    await transport.close()

    assert [*first, *second] == [Succeeded()] * 2
    assert mailbox.connections == 2


async def test_a_greeting_that_never_comes_is_an_outage(mailbox: Mailbox) -> None:
    mailbox.at_greeting.append("")

    [letter] = await deliver(mailbox, MAIL, connect_timeout="100ms")

    assert letter.fault is not None
    assert letter.reason is FailureReason.EXHAUSTED
    assert letter.fault.rule.startswith("network: ")
    assert "100ms" in letter.fault.message


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_tls_is_spoken_and_a_password_only_then(scheme: str) -> None:
    authority = trustme.CA()
    server, client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    async with a_mailbox(tls=server, implicit=scheme == "smtps", login=SECRET.encode()) as mailbox:
        url = f"{scheme}://127.0.0.1:{mailbox.port}"
        options: dict[str, Any] = {"sender": "shop@example.com", "allow_networks": ("127.0.0.1",)}
        options |= {"user": "shop", "tls": client}
        app = Redrive("memory://")
        app.destination("mail", "good.*", transport=smtp(url, password=SECRET, **options))
        app.destination("wrong", "bad.*", transport=smtp(url, password=WRONG, **options))
        async with app:
            await app.publish("good.mail", MAIL)
            await app.publish("bad.mail", MAIL)
            tally = await app.drain()
            [letter] = (await app.operations.dead_letters()).deliveries

    assert (tally.delivered, tally.failed) == (1, 1)
    assert letter.fault is not None
    assert letter.fault.rule == "reply 535 5.7.8"
    assert WRONG not in letter.fault.message


async def test_a_certificate_that_does_not_fit_is_an_outage_and_nothing_is_said() -> None:
    authority = trustme.CA()
    server, client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("another.example").configure_cert(server)
    authority.configure_trust(client)
    async with a_mailbox(tls=server, login=SECRET.encode()) as mailbox:
        [letter] = await deliver(
            mailbox, MAIL, starttls=True, tls=client, user="shop", password=SECRET
        )

    assert letter.fault is not None
    assert letter.reason is FailureReason.EXHAUSTED
    assert "certificate" in letter.fault.message
    assert mailbox.logins == []


async def test_a_server_without_starttls_gets_no_mail(mailbox: Mailbox) -> None:
    [letter] = await deliver(mailbox, MAIL, starttls=True)

    assert letter.fault is not None
    assert letter.fault.rule == "not supported"
    assert mailbox.received == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"to": []}, "for nobody"),
        ({"to": "ann"}, "no address"),
        ({"to": "ann@example.com\r\nRCPT TO:<x@y.z>"}, "line break"),
        ({"to": "ann@example.com\r\nDATA"}, "no address"),
        ({"to": "Ann\r\nBcc: x@y.z <ann@example.com>"}, "line break"),
        ({"to": "ann@-bad-.example"}, "no address"),
        ({"to": 7}, "an address such as"),
        ({"subject": "Hi\r\nBcc: x@y.z"}, "line break"),
        ({"headers": {"X-A": "1\nBcc: x"}}, "line break"),
        ({"headers": {"X A": "1"}}, "no header may have"),
        ({"headers": {"Bcc": "x@y.z"}}, "set by Redrive"),
        ({"text": None}, "says nothing"),
        ({"text": 7}, "it is text"),
        ({"unsubscribe": "javascript:x"}, "unsubscribe"),
        ({"unsubscribe": "https://x> <y"}, "unsubscribe"),
        ({"attachments": [{"path": "a"}]}, "attachment_folder"),
        ({"attachments": {"path": "a"}}, "no list"),
        ({"colour": "red"}, "colour"),
        ({"to": [f"u{number}@example.com" for number in range(101)]}, "more than"),
    ],
)
async def test_what_is_no_mail_is_refused_before_any_server_sees_it(
    mailbox: Mailbox, change: dict[str, Any], said: str
) -> None:
    [letter] = await deliver(mailbox, {**MAIL, **change}, attempts=3)

    assert letter.fault is not None
    assert (letter.reason, letter.fault.rule) == (FailureReason.TERMINAL, "mail does not fit")
    assert said in letter.fault.message
    assert mailbox.connections == 0


@pytest.mark.parametrize("path", ["../secret", "/etc/hostname", "link"])
async def test_an_attachment_comes_from_its_folder_only(
    mailbox: Mailbox, tmp_path: Path, path: str
) -> None:
    folder = tmp_path / "bills"
    folder.mkdir()
    (tmp_path / "secret").write_text("hidden")
    (folder / "link").symlink_to(tmp_path / "secret")
    payload = {**MAIL, "attachments": [{"path": path}]}

    [letter] = await deliver(mailbox, payload, attachment_folder=str(folder))

    assert letter.fault is not None
    assert "outside" in letter.fault.message


async def test_attachments_have_a_limit_and_one_that_is_missing_may_come(
    mailbox: Mailbox, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(b"x" * 11)
    options: dict[str, Any] = {"attachment_folder": str(tmp_path), "attachment_limit": 10}

    [large] = await deliver(mailbox, {**MAIL, "attachments": [{"path": "large"}]}, **options)
    [missing] = await deliver(mailbox, {**MAIL, "attachments": [{"path": "later"}]}, **options)

    assert large.fault is not None
    assert missing.fault is not None
    assert large.reason is FailureReason.TERMINAL
    assert (missing.reason, missing.fault.rule) == (FailureReason.EXHAUSTED, "attachment")


async def test_its_health_is_asked_by_a_greeting(mailbox: Mailbox) -> None:
    transport: Any = way_to(mailbox).build(terms=Terms(), clock=SystemClock())

    well = await transport.check_health(None)
    mailbox.at_greeting.append("421 4.3.2 closed")
    ill = await transport.check_health(None)

    assert well == ""
    assert "421" in ill


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("smtp://mail.example.com", {}, "needs a sender"),
        ("smtp://mail.example.com", {"sender": "shop"}, "sender"),
        ("smtps://mail.example.com", {"starttls": True}, "TLS already"),
        ("smtp://h", {"starttls": False, "user": "u", "password": "p"}, "in the clear"),
        ("smtp://h", {"starttls": 1}, "True or False"),
        ("mailto://h", {}, "smtp or smtps"),
        ("smtp://h", {"subject": "{{ payload.x"}, "."),
        ("smtp://h", {"attachment_limit": 0}, "attachment_limit"),
    ],
)
def test_a_wrong_declaration_is_refused_with_advice(
    url: str, options: dict[str, Any], said: str
) -> None:
    given = {"sender": "shop@example.com"} if "needs" not in said else {}

    with pytest.raises(ConfigurationError, match=said):
        smtp(url, **{**given, **options})


def test_every_option_is_listed_in_the_guide() -> None:
    listed = table_of(ROOT / "docs" / "guides" / "mail.md", "Options")

    assert sorted(listed) == sorted(SmtpOptions.__annotations__)


class MailSite(Site):
    secrets = (SECRET,)
    bad = b'{"to":"nobody","text":"x"}'
    lost_after = len("250 2.1.0 OK__250 2.1.5 OK__354 End data with <CR><LF>.<CR><LF>__") + 1

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self.port = mailbox.port

    def way(self, host: str, port: int, allow_networks: Any) -> SmtpBlueprint:  # noqa: ANN401
        return smtp(
            f"smtp://{host}:{port}",
            starttls=False,
            sender="shop@example.com",
            to=f"{{{{ payload.to | default('{ANN}') }}}}",
            text="Thank you.",
            allow_networks=allow_networks,
        )

    async def arrived(self) -> list[str]:
        return [one.message["Message-ID"][1:37] for one in self._mailbox.received]


class TestConformance(RemoteWayConformance):
    @pytest.fixture
    def site(self, mailbox: Mailbox) -> Site:
        return MailSite(mailbox)


async def test_what_the_store_could_not_tell_spends_no_try(mailbox: Mailbox) -> None:
    """Without it, those who have accepted the mail would get it again."""
    transport: Any = way_to(mailbox).build(terms=Terms(), clock=SystemClock())

    async def away(_: int) -> None:
        raise StoreUnavailableError("the disk is gone")

    transport.recall_by(away)
    again = msgspec.structs.replace(a_delivery(1, msgspec.json.encode(MAIL)), attempt=2)
    [outcome] = await transport.send([again])

    assert isinstance(outcome, Interrupted)
    assert mailbox.received == []


async def test_a_failure_before_a_recipient_is_named_keeps_who_has_accepted_it(
    mailbox: Mailbox,
) -> None:
    mailbox.refuse(BOB, "451 4.2.1 busy")
    transport: Any = way_to(mailbox).build(terms=Terms(), clock=SystemClock())

    first = a_delivery(1, msgspec.json.encode(MAIL))
    [outcome] = await transport.send([first])
    assert isinstance(outcome, Faulted)

    async def recall(_: int) -> Addressees | None:
        return outcome.addressees

    transport.recall_by(recall)
    mailbox.at_mail.append("451 4.3.0 later")
    [second] = await transport.send([msgspec.structs.replace(first, attempt=2)])
    await transport.close()

    assert isinstance(second, Faulted)
    assert second.nature is Nature.TRANSIENT
    assert second.addressees == Addressees(accepted=(ANN, EVE))
