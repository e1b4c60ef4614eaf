"""Signatures: whether a message comes from who knows the secret, and is fresh."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

import msgspec

from redrive.inbound.message import Message
from redrive.transports.signing import SigningKey

__all__ = [
    "Encoding",
    "GitHubSignature",
    "HmacSignature",
    "NoSignature",
    "Signature",
    "StandardSignature",
    "StripeSignature",
]

Encoding = Literal["hex", "base64"]

_MOST = 20
"""How many signatures of one message are looked at; senders send two while a key changes."""
_MOST_DIGITS = 12


class Signature(Protocol):
    """How a sender signs what it sends."""

    def is_genuine(self, message: Message, now: datetime) -> bool:
        """Tell whether it was signed with one of the secrets, and not too long ago."""


class NoSignature:
    """Takes anybody's word."""

    def is_genuine(self, message: Message, now: datetime) -> bool:  # noqa: ARG002 - it is a port
        """Believe it."""
        return True


class StandardSignature(msgspec.Struct, frozen=True):
    """The scheme of Standard Webhooks: id, time and body are signed."""

    keys: tuple[SigningKey, ...]
    tolerance: timedelta

    def is_genuine(self, message: Message, now: datetime) -> bool:
        """Tell whether `webhook-signature` has a signature by one of the keys."""
        message_id, at = message.header("webhook-id"), message.header("webhook-timestamp")
        if not message_id or not _is_fresh(at, now, self.tolerance):
            return False
        content = f"{message_id}.{at}.".encode() + message.body
        given = message.header("webhook-signature").split()
        return _is_any(given, (key.signature(content) for key in self.keys))


class GitHubSignature(msgspec.Struct, frozen=True):
    """The scheme of GitHub: the body is signed, and neither its id nor a time."""

    secrets: tuple[str, ...]

    def is_genuine(self, message: Message, now: datetime) -> bool:  # noqa: ARG002 - it is a port
        """Tell whether `X-Hub-Signature-256` was made with one of the secrets."""
        given = [message.header("x-hub-signature-256")]
        return _is_any(given, (f"sha256={_hex(one, message.body)}" for one in self.secrets))


class StripeSignature(msgspec.Struct, frozen=True):
    """The scheme of Stripe: time and body are signed, and both stand in one header."""

    secrets: tuple[str, ...]
    tolerance: timedelta

    def is_genuine(self, message: Message, now: datetime) -> bool:
        """Tell whether a `v1` of `Stripe-Signature` was made with one of the secrets."""
        parts = [
            one.strip().partition("=") for one in message.header("stripe-signature").split(",")
        ]
        times = [value for name, _, value in parts if name == "t"]
        if len(times) != 1 or not _is_fresh(times[0], now, self.tolerance):
            return False
        content = f"{times[0]}.".encode() + message.body
        given = [value for name, _, value in parts if name == "v1"]
        return _is_any(given, (_hex(one, content) for one in self.secrets))


class HmacSignature(msgspec.Struct, frozen=True, kw_only=True):
    """A scheme that a document describes: what is signed, how, and where it stands.

    `signed` is what the secret signs, with `{body}` for the body and, where they are signed,
    `{timestamp}` and `{id}` for what their headers say.
    """

    secrets: tuple[str, ...]
    header: str
    algorithm: str = "sha256"
    encoding: Encoding = "hex"
    prefix: str = ""
    signed: str = "{body}"
    timestamp_header: str = ""
    id_header: str = ""
    tolerance: timedelta = timedelta(minutes=5)

    def is_genuine(self, message: Message, now: datetime) -> bool:
        """Tell whether the header has what one of the secrets makes of the message."""
        at = message.header(self.timestamp_header) if self.timestamp_header else ""
        if self.timestamp_header and not _is_fresh(at, now, self.tolerance):
            return False
        before, _, after = self.signed.partition("{body}")
        said = {"timestamp": at, "id": message.header(self.id_header) if self.id_header else ""}
        content = _filled(before, said) + message.body + _filled(after, said)
        given = [message.header(self.header)]
        return _is_any(given, (self.prefix + self._written(one, content) for one in self.secrets))

    def _written(self, secret: str, content: bytes) -> str:
        digest = hmac.digest(secret.encode(), content, self.algorithm)
        return digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode()


def _filled(text: str, said: dict[str, str]) -> bytes:
    for name, value in said.items():
        text = text.replace(f"{{{name}}}", value)
    return text.encode()


def _hex(secret: str, content: bytes) -> str:
    return hmac.digest(secret.encode(), content, hashlib.sha256).hex()


def _is_any(given: Sequence[str], right: Iterable[str]) -> bool:
    """Compare each with each, in a time that tells nothing of how much of one was right."""
    seen = [one.encode() for one in given[:_MOST]]
    compared = [hmac.compare_digest(one, it.encode()) for it in right for one in seen]
    return any(compared)


def _is_fresh(at: str, now: datetime, tolerance: timedelta) -> bool:
    if not (at.isascii() and at.isdigit() and len(at) <= _MOST_DIGITS):
        return False
    return abs(now.timestamp() - int(at)) <= tolerance.total_seconds()
