"""Envelope: AES-256-GCM, with the id of the key that opens it written in front.

    1 byte    the version of this form, 1
    1 byte    how long the key's id is, and the id
    12 bytes  chance that is used once
    the rest  what is sealed, and 16 bytes by which any change is found

What it is about is not written and must be said again to open it: an envelope that was put in the
place of another does not open. The key's id is vouched for likewise.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

from redrive.errors import ConfigurationError

__all__ = [
    "KEY_BYTES",
    "NONCE_BYTES",
    "Envelope",
    "cipher_of",
    "close_envelope",
    "open_envelope",
]

KEY_BYTES = 32
NONCE_BYTES = 12
_VERSION = 1


class Envelope(NamedTuple):
    """An envelope taken apart: which key opens it, and what is in it, still encrypted."""

    key_id: str
    nonce: bytes
    sealed: bytes

    @classmethod
    def read(cls, written: bytes) -> Envelope | None:
        """Return the parts of an envelope, or `None` if it is none."""
        if len(written) < 2 or written[0] != _VERSION:  # noqa: PLR2004 - the first two bytes
            return None
        start = 2 + written[1]
        end = start + NONCE_BYTES
        key_id = written[2:start].decode("ascii", "replace")
        return cls(key_id, written[start:end], written[end:]) if len(written) > end else None

    def write(self) -> bytes:
        """Return it as it is kept."""
        key_id = self.key_id.encode("ascii")
        return bytes((_VERSION, len(key_id))) + key_id + self.nonce + self.sealed


def close_envelope(plain: bytes, *, key_id: str, key: bytes, nonce: bytes, about: bytes) -> bytes:
    """Return what only who has the key can read; a nonce is never used twice with one key."""
    sealed: bytes = cipher_of(key).encrypt(nonce, plain, _vouched(key_id, about))
    return Envelope(key_id, nonce, sealed).write()


def open_envelope(envelope: Envelope, *, key: bytes, about: bytes) -> bytes | None:
    """Return what was sealed, or `None` if the key is another, or anything was changed."""
    cipher = cipher_of(key)
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - it is an extra

    try:
        about = _vouched(envelope.key_id, about)
        plain: bytes = cipher.decrypt(envelope.nonce, envelope.sealed, about)
    except InvalidTag:
        return None
    return plain


def cipher_of(key: bytes) -> Any:  # noqa: ANN401 - a class of an extra
    """Return what encrypts and decrypts by a key; it needs an extra, and says so."""
    if find_spec("cryptography") is None:
        raise ConfigurationError(
            "Encryption needs cryptography, which is not installed; "
            "install it with: pip install 'redrive[gateway]'"
        )
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - it is an extra

    return AESGCM(key)


def _vouched(key_id: str, about: bytes) -> bytes:
    return key_id.encode("ascii") + b"\x00" + about
