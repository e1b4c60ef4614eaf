"""Secrets of our own making: how they are written, and how they are told from a slip of the hand.

`rdt_` is an access token, with its public id, `rds_` a session. A checksum at the end tells a
mistyped one from a wrong one, and lets scanners of code be sure of what they have found:
`rdt_[a-z2-7]{12}_[a-z2-7]{59}` and `rds_[a-z2-7]{59}`.
"""

from __future__ import annotations

import hmac
import re
from base64 import b32encode
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

__all__ = [
    "ID_BYTES",
    "SECRET_BYTES",
    "TokenSecret",
    "is_same",
    "read_session",
    "read_token",
    "write_session",
    "write_token",
]

ID_BYTES = 7
SECRET_BYTES = 32

_TOKEN = re.compile(r"rdt_([a-z2-7]{12})_([a-z2-7]{52})([a-z2-7]{7})")
_SESSION = re.compile(r"rds_([a-z2-7]{52})([a-z2-7]{7})")


class TokenSecret(NamedTuple):
    """What is in the secret of an access token: its public id, and the digest a store keeps."""

    id: str
    digest: str


def write_token(public: bytes, random: bytes) -> tuple[str, TokenSecret]:
    """Return the secret of a new token as its bearer shows it, and what is kept of it."""
    token_id, word = _spelled(public), _spelled(random)
    return _checked(f"rdt_{token_id}_{word}"), TokenSecret(token_id, _digest(word))


def read_token(secret: object) -> TokenSecret | None:
    """Return what a secret says, or `None` if it is none of ours or was mistyped."""
    found = _TOKEN.fullmatch(secret) if isinstance(secret, str) else None
    if found is None or _checked(found[0][: found.start(3)]) != found[0]:
        return None
    return TokenSecret(found[1], _digest(found[2]))


def write_session(random: bytes) -> tuple[str, str]:
    """Return the secret of a new session, and the digest that is kept of it."""
    word = _spelled(random)
    return _checked(f"rds_{word}"), _digest(word)


def read_session(secret: object) -> str | None:
    """Return the digest of a session's secret, or `None` if it is none of ours."""
    found = _SESSION.fullmatch(secret) if isinstance(secret, str) else None
    if found is None or _checked(found[0][: found.start(2)]) != found[0]:
        return None
    return _digest(found[1])


def is_same(one: str, other: str) -> bool:
    """Compare two digests in a time that tells nothing of where they differ."""
    return hmac.compare_digest(one, other)


def _spelled(given: bytes) -> str:
    return b32encode(given).decode().rstrip("=").lower()


def _checked(text: str) -> str:
    return text + _spelled(crc32(text.encode()).to_bytes(4, "big"))


def _digest(word: str) -> str:
    return sha256(word.encode()).hexdigest()
