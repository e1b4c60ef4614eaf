"""A mail as bytes: the same id and the same date each time it is sent."""

from __future__ import annotations

import hashlib
from email.headerregistry import Address as HeaderAddress
from email.message import EmailMessage
from email.policy import SMTP

import msgspec

from redrive.errors import PayloadError
from redrive.model.event import Event
from redrive.transports.mail.addresses import Address
from redrive.transports.mail.letter import Mail

__all__ = ["message_id", "write_message"]


def message_id(mail: Mail, event: Event[msgspec.Raw], destination: str) -> str:
    """Return the id by which a receiver knows a repeat; each destination has one of its own."""
    whose = hashlib.sha256(destination.encode()).hexdigest()[:8]
    return f"<{event.id}.{whose}@{mail.sender.domain}>"


def write_message(mail: Mail, event: Event[msgspec.Raw], destination: str, *, limit: int) -> bytes:
    """Return the message; reads its attachments, and so belongs on a thread.

    Those who get a blind copy are in the envelope alone.
    """
    message = EmailMessage(policy=SMTP)
    message["Message-ID"] = message_id(mail, event, destination)
    message["Date"] = event.occurred_at
    message["From"] = _header(mail.sender)
    for name, addresses in (("To", mail.to), ("Cc", mail.cc), ("Reply-To", mail.reply_to)):
        if addresses:
            message[name] = tuple(_header(one) for one in addresses)
    message["Subject"] = mail.subject
    if mail.unsubscribe:
        message["List-Unsubscribe"] = f"<{mail.unsubscribe}>"
        if mail.unsubscribe.startswith("https:"):
            message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    for name, value in mail.headers.items():
        message[name] = value
    if mail.text is not None:
        message.set_content(mail.text)
        if mail.html is not None:
            message.add_alternative(mail.html, subtype="html")
    else:
        message.set_content(mail.html, subtype="html")
    size = 0
    for one in mail.attachments:
        with one.path.open("rb") as opened:
            content = opened.read(limit - size + 1)
        size += len(content)
        if size > limit:
            raise PayloadError(
                f"The attachments have more than {limit:,} bytes; send a link, or raise "
                "attachment_limit."
            )
        kind, _, subkind = one.type.partition("/")
        message.add_attachment(content, maintype=kind, subtype=subkind, filename=one.name)
    return message.as_bytes()


def _header(address: Address) -> HeaderAddress:
    return HeaderAddress(display_name=address.name, addr_spec=address.address)
