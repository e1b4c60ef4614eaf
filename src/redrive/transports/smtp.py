"""SMTP: one mail for each event; who has accepted it is not sent to again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

import msgspec

from redrive.clock import Clock
from redrive.errors import (
    ConfigurationError,
    StoreError,
    refuse_unknown,
)
from redrive.model.delivery import Leased
from redrive.model.health import HealthCheck
from redrive.model.outcome import (
    Addressees,
    Exchange,
    Fault,
    Faulted,
    Interrupted,
    Nature,
    Outcome,
    Succeeded,
)
from redrive.policies.capture import bounded_message, capture
from redrive.policies.classify import Verdict
from redrive.policies.redact import without_secrets
from redrive.policies.smtp import classify_reply, enhanced_of
from redrive.policies.terms import Terms
from redrive.transport import Recall, Transport
from redrive.transports.failures import broken, printable, refused
from redrive.transports.mail import Mail, MailOptions, Recipe, compose_mail, read_recipe
from redrive.transports.options import need, read_count, read_name
from redrive.transports.server import Server, ServerOptions, read_login, read_server

if TYPE_CHECKING:
    from aiosmtplib import SMTP

__all__ = ["SmtpBlueprint", "SmtpOptions", "SmtpTransport", "smtp"]

_SUCCEEDED = Succeeded()
_PORTS = {"smtp": 587, "smtps": 465}
_CLOSING = 421
_LONGEST_SENT = 2**16
Replies = dict[str, tuple[int, str]]


class SmtpOptions(ServerOptions, MailOptions, total=False):
    """What `smtp` takes beside the address; see there."""

    starttls: bool
    """Whether an address that begins with `smtp` must change to TLS before anything is said."""
    helo: str
    """The name that we give ourselves."""
    connections: int
    """How many connections a worker keeps to it at once."""


class SmtpBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked mail server and how mails are made, of which each worker makes a transport."""

    server: Server
    login: tuple[str, str] | None
    recipe: Recipe
    starttls: bool
    helo: str
    connections: int

    def build(self, *, terms: Terms, clock: Clock) -> Transport:  # noqa: ARG002 - as the port has it
        """Return a transport for one worker; it connects when it first sends."""
        return SmtpTransport(self, terms=terms)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return () if self.login is None else (self.login[1],)

    def __repr__(self) -> str:
        return f"smtp({self.server.shown!r}, …)"


def smtp(url: str, **options: Unpack[SmtpOptions]) -> SmtpBlueprint:
    """Declare a mail server, for `app.destination(..., transport=smtp(...))`.

    - the address is `smtp://host:587`, which changes to TLS with STARTTLS, or `smtps://host:465`;
      `user` and `password` beside it. `starttls=False` sends in the clear, and never a password
    - `sender`: whom the mail is from
    - `to`, `cc`, `bcc`, `subject`, `text`, `html`, `reply_to`, `unsubscribe`, `attachments`:
      templates of what the mail says. Without any of them the payload is an object with them
    - `attachment_folder`, `attachment_limit`: where attachments may come from, and how many bytes
    - `helo`, `connections`: the name we give ourselves, and how many connections to hold
    - `allow_private`, `allow_networks`, `tls`, `connect_timeout`: as for `http`

    >>> smtp("smtp://mail.example.com", sender="shop@example.com")
    smtp('mail.example.com:587', …)
    """
    refuse_unknown(options, SmtpOptions.__annotations__, what="smtp option")
    need("Mail servers", extra="smtp", modules=("aiosmtplib",))
    server, login = read_server(url, options, ports=_PORTS), read_login(options)
    starttls = options.get("starttls", server.scheme == "smtp")
    if not isinstance(starttls, bool):
        raise ConfigurationError(f"starttls is {starttls!r}; it is True or False.")
    if server.scheme == "smtps" and starttls:
        raise ConfigurationError("An address with smtps:// is TLS already; leave starttls out.")
    if login is not None and server.scheme == "smtp" and not starttls:
        raise ConfigurationError(
            "A password would be sent in the clear; leave starttls=False out, or the password."
        )
    return SmtpBlueprint(
        server=server,
        login=login,
        recipe=read_recipe(options),
        starttls=starttls,
        helo=read_name("helo", options.get("helo", socket.gethostname()), example="shop.example"),
        connections=read_count("connections", options.get("connections", 5)),
    )


class SmtpTransport:
    """Sends mails over connections that are used again; belongs to one worker."""

    batch = 1

    def __init__(self, plan: SmtpBlueprint, *, terms: Terms) -> None:
        self._plan = plan
        self._terms = terms
        self._recall: Recall | None = None
        self._places = asyncio.Semaphore(plan.connections)
        self._free: list[SMTP] = []

    def recall_by(self, recall: Recall) -> None:
        self._recall = recall

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        return [await self._attempt(one) for one in deliveries]

    async def close(self) -> None:
        free, self._free = self._free, []
        for client in free:
            await _leave(client)

    async def check_health(self, health: HealthCheck) -> str:  # noqa: ARG002 - it has no URL
        try:
            client = await self._connected()
            await _leave(client)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, it is not well
            return self._failed(error).fault.message
        return ""

    async def _attempt(self, one: Leased) -> Outcome:
        plan = self._plan
        composed = await compose_mail(plan.recipe, one)
        if isinstance(composed, Faulted):
            return composed
        mail, message = composed
        try:
            known = await self._earlier(one, mail)
        except StoreError as error:
            return Interrupted(fault=capture(error, rule="the store could not be asked"))
        left = [who for who in mail.recipients if not known.knows(who)]
        if not left:
            return self._outcome(mail, message, known, {})
        async with self._places:
            try:
                accepted, replies = await self._carry(mail, message, left)
            except Exception as error:  # noqa: BLE001 - whatever the client raises is an outcome
                faulted = self._failed(error)
                if len(mail.recipients) > 1 and not known.is_empty:
                    faulted = msgspec.structs.replace(faulted, addressees=known)
                exchange = self._exchange(mail, message, None)
                return msgspec.structs.replace(faulted, exchange=exchange)
        known = Addressees(
            accepted=(*known.accepted, *accepted),
            refused=known.refused
            | {
                who: f"{code} {text}"
                for who, (code, text) in replies.items()
                if classify_reply(code, text).nature is Nature.TERMINAL
            },
        )
        return self._outcome(mail, message, known, replies)

    async def _earlier(self, one: Leased, mail: Mail) -> Addressees:
        """Return who has answered for good in earlier tries.

        A replay asks those again who have refused: somebody may have seen to it.
        """
        was_tried = one.attempt > 1 or one.cycles
        if self._recall is None or len(mail.recipients) == 1 or not was_tried:
            return Addressees()
        known = await self._recall(one.lease.delivery_id) or Addressees()
        return known if one.attempt > 1 else Addressees(accepted=known.accepted)

    async def _carry(
        self, mail: Mail, message: bytes, left: Sequence[str]
    ) -> tuple[Sequence[str], Replies]:
        """Return who has accepted it, and what everybody else was refused with."""
        client, is_new = await self._client()
        try:
            if not is_new and not await self._begins(client, mail):
                client = await self._connected()
                is_new = True
            if is_new:
                await client.mail(mail.sender.address)
            accepted, replies = await _envelope(client, left)
            if accepted:
                replies |= await _content(client, message, accepted)
                accepted = [who for who in accepted if who not in replies]
            elif client.is_connected:
                await client.rset()
        except BaseException as error:
            if not self._is_refusal(error) or not client.is_connected:
                client.close()
            else:
                await self._give_back(client, is_clean=False)
            raise
        await self._give_back(client, is_clean=not _is_closing(replies))
        return accepted, replies

    async def _begins(self, client: SMTP, mail: Mail) -> bool:
        """Tell whether a connection that was kept still serves; nothing has been said by it yet."""
        from aiosmtplib import SMTPResponseException  # noqa: PLC0415 - the extra

        try:
            await client.mail(mail.sender.address)
        except SMTPResponseException as error:
            if error.code != _CLOSING:
                raise
        except (OSError, EOFError):
            pass
        else:
            return True
        client.close()
        return False

    async def _client(self) -> tuple[SMTP, bool]:
        while self._free:
            client = self._free.pop()
            if client.is_connected:
                return client, False
            client.close()
        return await self._connected(), True

    async def _give_back(self, client: SMTP, *, is_clean: bool) -> None:
        if is_clean and client.is_connected:
            self._free.append(client)
        else:
            client.close()

    async def _connected(self) -> SMTP:
        from aiosmtplib import SMTP  # noqa: PLC0415 - the extra

        plan = self._plan
        line = await plan.server.connect()
        user, password = plan.login or (None, None)
        is_tls = plan.server.scheme == "smtps"
        client = SMTP(
            hostname=plan.server.host,
            sock=line,
            local_hostname=plan.helo,
            use_tls=is_tls,
            start_tls=plan.starttls,
            tls_context=plan.server.trust() if is_tls or plan.starttls else None,
            username=user,
            password=password,
            timeout=plan.server.connect_timeout.total_seconds(),
        )
        try:
            await client.connect()
        except BaseException:
            # Not the socket: what is still to be written by it would keep its transport for ever.
            client.close()
            raise
        client.timeout = None  # the engine ends a try that takes too long
        return client

    def _outcome(self, mail: Mail, message: bytes, known: Addressees, replies: Replies) -> Outcome:
        waiting = {who: reply for who, reply in replies.items() if who not in known.refused}
        if not waiting and not known.refused:
            return _SUCCEEDED
        last: tuple[int, str] | None = next(iter(waiting.values()), None)
        if last is None:
            first = next(iter(known.refused.values()))
            code, _, text = first.partition(" ")
            last = int(code), text
        verdict = classify_reply(*last)
        exchange = self._exchange(mail, message, last)
        fault = self._fault(verdict, known, waiting, last)
        is_for_several = len(mail.recipients) > 1
        return Faulted(
            fault=fault,
            nature=verdict.nature,
            exchange=exchange,
            addressees=known if is_for_several else None,
        )

    def _fault(
        self, verdict: Verdict, known: Addressees, waiting: Replies, last: tuple[int, str]
    ) -> Fault:
        """Name everybody who has not accepted it, those first by whom it was decided."""
        told = [f"{who}: {code} {text}" for who, (code, text) in waiting.items()]
        told += [f"{who}: {why}" for who, why in known.refused.items()]
        count = len(known.accepted)
        has = f"; {count} accepted it and will not get it again" if count else ""
        message = f"{self._plan.server.shown} refused {'; '.join(told)}{has}"
        code, text = last
        return Fault(
            error_class=f"SMTP {code}",
            message=self._told(message),
            rule=verdict.rule,
            code=enhanced_of(text) or str(code),
        )

    def _failed(self, error: Exception) -> Faulted:
        """Return the failure of a conversation that was not about a recipient."""
        from aiosmtplib import SMTPException, SMTPResponseException  # noqa: PLC0415 - the extra

        plan = self._plan
        match error:
            case SMTPResponseException(code=int(code), message=str(text)) if code > 0:
                verdict = classify_reply(code, text)
                fault = Fault(
                    error_class=f"SMTP {code}",
                    message=self._told(f"{plan.server.shown} answered {code} {text}"),
                    rule=verdict.rule,
                    code=enhanced_of(text) or str(code),
                )
                return Faulted(fault=fault, nature=verdict.nature)
            case SMTPException() if not isinstance(error, OSError):
                # Of all mails: a breaker holds them until the server, or its address, is mended.
                return refused(
                    f"{plan.server.shown}: {error}",
                    error_class=type(error).__name__,
                    rule="not supported",
                    nature=Nature.TRANSIENT,
                    secrets=plan.secrets,
                )
        return broken(plan.server, error, self._terms, secrets=plan.secrets)

    def _exchange(self, mail: Mail, message: bytes, reply: tuple[int, str] | None) -> Exchange:
        """Return what was said and answered."""
        text = message.decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
        sent = Exchange(
            method="MAIL",
            url=f"{self._plan.server.scheme}://{self._plan.server.shown}",
            headers={"from": mail.sender.address, "to": ", ".join(mail.recipients)},
            size=len(message),
            sent=text[:_LONGEST_SENT],
            is_sent_cut=len(text) > _LONGEST_SENT,
        )
        if reply is None:
            return sent
        code, said = reply
        return msgspec.structs.replace(sent, status=code, body=self._told(said))

    def _told(self, text: str) -> str:
        return bounded_message(printable(without_secrets(text, self._plan.secrets)))

    def _is_refusal(self, error: BaseException) -> bool:
        from aiosmtplib import SMTPResponseException  # noqa: PLC0415 - the extra

        return isinstance(error, SMTPResponseException)


async def _envelope(client: SMTP, left: Sequence[str]) -> tuple[list[str], Replies]:
    """Name each recipient; those that come after a server has said goodbye wait for another."""
    from aiosmtplib import SMTPRecipientRefused  # noqa: PLC0415 - the extra

    accepted: list[str] = []
    replies: Replies = {}
    for number, who in enumerate(left):
        try:
            await client.rcpt(who)
        except SMTPRecipientRefused as refusal:
            replies[who] = refusal.code, refusal.message
            if refusal.code == _CLOSING:
                rest = [*accepted, *left[number + 1 :]]
                return [], {**dict.fromkeys(rest, replies[who]), **replies}
        else:
            accepted.append(who)
    return accepted, replies


async def _content(client: SMTP, message: bytes, accepted: Sequence[str]) -> Replies:
    """Say it; what is answered now is answered for all of them."""
    from aiosmtplib import SMTPDataError  # noqa: PLC0415 - the extra

    try:
        await client.data(message)
    except SMTPDataError as refusal:
        return dict.fromkeys(accepted, (refusal.code, refusal.message))
    return {}


def _is_closing(replies: Mapping[str, tuple[int, str]]) -> bool:
    return any(code == _CLOSING for code, _ in replies.values())


async def _leave(client: SMTP) -> None:
    """Say goodbye to a server that listens, and close."""
    try:
        client.timeout = 1.0
        if client.is_connected:
            await client.quit()
    except Exception:  # noqa: BLE001, S110 - it is closed anyway
        pass
    finally:
        client.close()
