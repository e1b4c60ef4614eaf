"""Signatures by Standard Webhooks: the receiver can tell that a message is ours and is fresh."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from redrive.errors import ConfigurationError

__all__ = ["SigningKey", "sign"]

_PREFIX = "whsec_"
_KEY_BYTES = range(24, 65)


class SigningKey:
    """A secret shared with the receiver: `whsec_` and 24 to 64 random bytes in base64.

    It shows itself to nobody: neither printing it nor an error about it tells the secret.
    """

    def __init__(self, text: object) -> None:
        self._secret = _read(text)

    def signature(self, content: bytes) -> str:
        """Return the signature of a message's id, time and body."""
        digest = hmac.digest(self._secret, content, hashlib.sha256)
        return f"v1,{base64.b64encode(digest).decode()}"

    def __repr__(self) -> str:
        return "SigningKey(…)"


def sign(keys: Sequence[SigningKey], *, message_id: str, at: datetime, body: bytes) -> str:
    """Return the `webhook-signature`: one signature per key, so that keys can be rotated.

    `at` is what the header `webhook-timestamp` says, in whole seconds.
    """
    content = f"{message_id}.{int(at.timestamp())}.".encode() + body
    return " ".join(key.signature(content) for key in keys)


def _read(text: object) -> bytes:
    if not isinstance(text, str) or not text.startswith(_PREFIX):
        raise ConfigurationError(
            f"A signing key does not begin with {_PREFIX!r}; write {_PREFIX} followed by 24 to 64 "
            "random bytes in base64, such as those of `openssl rand -base64 32`."
        )
    encoded = text.removeprefix(_PREFIX)
    padding = "=" * (-len(encoded) % 4)
    try:
        secret = base64.b64decode(encoded + padding, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError(
            f"A signing key has something after {_PREFIX!r} that is not base64; take what "
            "`openssl rand -base64 32` prints, without a line break."
        ) from None
    if len(secret) not in _KEY_BYTES:
        raise ConfigurationError(
            f"A signing key has {len(secret)} bytes; Standard Webhooks asks for 24 to 64 random "
            "ones, such as those of `openssl rand -base64 32`."
        )
    return secret
