"""Secrets that a store keeps: what is known of each, and never what it is."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from redrive.errors import ConfigurationError

__all__ = ["LONGEST_SECRET", "Rotated", "Secret", "check_secret", "check_secret_name"]

LONGEST_SECRET = 2**16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, as everybody may know it."""

    name: str
    version: int
    """How often it was set; to encrypt it anew changes nothing of that."""
    key_id: str
    """The key that it is encrypted with."""
    changed_at: datetime
    changed_by: str


class Rotated(msgspec.Struct, frozen=True, kw_only=True):
    """What became of secrets that were to be encrypted by the current key."""

    key_id: str
    rotated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


def check_secret_name(name: object) -> str:
    """Return the name of a secret, or say what it is made of; another is not shown."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            "The name of a secret has 1 to 100 letters, digits, '.', '_' and '-', such as "
            "crm-token; this one has not."
        )
    return name


def check_secret(value: object) -> str:
    """Return a secret that can be kept, or say what is wrong without showing it."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError("The secret is empty, or is no text; give it as it is sent.")
    if "\x00" in value or len(value.encode("utf-8", "replace")) > LONGEST_SECRET:
        raise ConfigurationError(
            f"The secret has more than {LONGEST_SECRET:,} bytes, or a zero byte in it; it is what "
            "is sent in a header, or a key in text."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigurationError("The secret is no text that can be kept in UTF-8.") from None
    return value
