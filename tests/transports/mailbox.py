"""A mail server on loopback that answers by script: aiosmtpd on the test's own event loop."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
import warnings
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Any, NamedTuple

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

__all__ = ["Mailbox", "Received", "a_mailbox"]


class Received(NamedTuple):
    """A mail that was accepted, and for whom."""

    recipients: list[str]
    message: EmailMessage


class Mailbox:
    """Accepts everything but what its script refuses."""

    def __init__(self) -> None:
        self.port = 0
        self.received: list[Received] = []
        self.refused: dict[str, deque[str]] = {}
        self.at_mail: deque[str] = deque()
        self.at_data: deque[str] = deque()
        self.at_greeting: deque[str] = deque()
        self.logins: list[bytes] = []
        self.connections = 0
        self.asked: list[str] = []
        self.lines: list[asyncio.Transport] = []

    def refuse(self, who: str, *replies: str) -> None:
        """Answer these when this recipient is named, one each time."""
        self.refused.setdefault(who, deque()).extend(replies)

    async def handle_MAIL(  # noqa: N802 - as aiosmtpd has it
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.at_mail:
            return self._say(server, self.at_mail.popleft())
        envelope.mail_from = address
        return "250 2.1.0 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        self.asked.append(address)
        if replies := self.refused.get(address):
            return self._say(server, replies.popleft())
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        if self.at_data:
            return self._say(server, self.at_data.popleft())
        content = envelope.content
        assert isinstance(content, bytes)
        message = email.message_from_bytes(content, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        self.received.append(Received(list(envelope.rcpt_tos), message))
        return "250 2.0.0 queued"

    def _say(self, server: SMTP, reply: str) -> str:
        if reply.startswith("421"):
            # It says goodbye, and hangs up.
            asyncio.get_running_loop().call_soon(self.lines[-1].close)
        return reply


class _Scripted(SMTP):
    """Greets as the script says."""

    def __init__(self, mailbox: Mailbox, **options: Any) -> None:  # noqa: ANN401 - aiosmtpd's
        super().__init__(mailbox, hostname="mail.example", **options)
        self._mailbox = mailbox

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._mailbox.connections += 1
        assert isinstance(transport, asyncio.Transport)
        self._mailbox.lines.append(transport)
        super().connection_made(transport)

    async def push(self, status: str | bytes) -> None:
        text = status.decode() if isinstance(status, bytes) else status
        if text.startswith("220 mail.example") and self._mailbox.at_greeting:
            text = self._mailbox.at_greeting.popleft()
            if not text:
                await asyncio.Event().wait()
        await super().push(text)


@asynccontextmanager
async def a_mailbox(
    *, tls: ssl.SSLContext | None = None, implicit: bool = False, login: bytes | None = None
) -> AsyncIterator[Mailbox]:
    """Run a mail server while the block lasts."""
    mailbox, loop = Mailbox(), asyncio.get_running_loop()
    servers: list[_Scripted] = []

    def authenticate(
        server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        mailbox.logins.append(data.password)
        return AuthResult(success=data.password == login, handled=False)

    def make() -> _Scripted:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it does not know that the whole connection is TLS
            server = _Scripted(
                mailbox,
                loop=loop,
                tls_context=None if implicit else tls,
                require_starttls=tls is not None and not implicit,
                authenticator=None if login is None else authenticate,
                auth_required=login is not None,
                auth_require_tls=False,
            )
        servers.append(server)
        return server

    listener = await loop.create_server(make, "127.0.0.1", 0, ssl=tls if implicit else None)
    mailbox.port = listener.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        listener.close()
        for line in mailbox.lines:
            line.abort()
        await asyncio.gather(
            *[one._handler_coroutine for one in servers if one._handler_coroutine],  # noqa: SLF001
            return_exceptions=True,
        )
        await listener.wait_closed()
