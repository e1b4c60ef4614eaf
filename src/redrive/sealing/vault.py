"""Vault: payloads and pieces of them, as texts that only who has the key can read.

A text is `~`, the key's id, `:`, what is sealed in base64, and `~`; no JSON begins so. Of so many
payloads 96 bits of chance could come twice by one key: each vault therefore makes a key of its own
out of the one it is given, by 128 bits of chance that stand in front of what is sealed.
"""

from __future__ import annotations

import hashlib
import hmac
from binascii import Error as NoBase64
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import Any

from redrive.clock import Entropy
from redrive.errors import ConfigurationError, SecretError
from redrive.sealing.envelope import KEY_BYTES, NONCE_BYTES, cipher_of
from redrive.sealing.keyring import VARIABLE, KeyRing

__all__ = ["Vault", "check_is_installed", "digest_by", "key_of"]

_SALT_BYTES = 16
_MOST_SEALED = 2**28
"""So often one derived key is used, and then another is made."""
_MOST_KNOWN = 4_096


class Vault:
    """Seals and opens by the keys there are right now. It shows none of what it knows."""

    def __init__(self, keys: Callable[[], KeyRing], *, entropy: Entropy) -> None:
        self._keys = keys
        self._entropy = entropy
        self._ciphers: dict[tuple[str, bytes], Any] = {}
        self._sealing: tuple[str, bytes, Any] | None = None
        self._sealed = 0
        self.known: str | None = None
        """The key that the store is encrypted by, empty if by none; `None` before that is known."""

    @property
    def current(self) -> str:
        """The key to encrypt files by, empty for none; without the store's word the first."""
        if self.known is None:
            return next(iter(self.keys.ids), "")
        return self.known

    @property
    def keys(self) -> KeyRing:
        """The keys there are now; `SecretError` says why they cannot be read."""
        try:
            return self._keys()
        except ConfigurationError as error:  # not a mistake of whoever publishes or looks
            raise SecretError(f"{error} Nothing was changed.") from error

    def check(self, key_id: str) -> None:
        """Say so if what this key seals can be neither written nor read here."""
        if key_id not in self.keys.ids:
            raise SecretError(
                f"This store is encrypted by the key {key_id!r}, which is not among those here "
                f"({', '.join(self.keys.ids) or 'there is none'}), so nothing can be written to "
                f"it; add the key to {VARIABLE} or the file of keys. Nothing was changed."
            )

    def seal(self, plain: bytes, *, key_id: str, about: bytes) -> str:
        """Return a text that only who has the key can read; `about` must be said to open it."""
        sealing = self._sealing
        if sealing is None or sealing[0] != key_id or self._sealed >= _MOST_SEALED:
            self.check(key_id)
            salt = self._entropy.random_bytes(_SALT_BYTES)
            self._sealing = sealing = key_id, salt, self._cipher(key_id, salt)
            self._sealed = 0
        self._sealed += 1
        _, salt, cipher = sealing
        nonce = self._entropy.random_bytes(NONCE_BYTES)
        sealed = salt + nonce + cipher.encrypt(nonce, plain, about)
        return f"~{key_id}:{b2a_base64(sealed, newline=False).decode()}~"

    def open(self, text: str, *, about: bytes, what: str) -> bytes:
        """Return what was sealed, or say which key is missing; nothing is changed by that."""
        key_id, _, encoded = text[1:-1].partition(":")
        try:
            sealed = a2b_base64(encoded)
        except (NoBase64, ValueError):
            raise SecretError(f"{what} is encrypted, and was damaged: it is no base64.") from None
        salt, nonce = sealed[:_SALT_BYTES], sealed[_SALT_BYTES : _SALT_BYTES + NONCE_BYTES]
        cipher = self._ciphers.get((key_id, salt)) or self._cipher(key_id, salt, what=what)
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - it is an extra

        try:
            plain: bytes = cipher.decrypt(nonce, sealed[_SALT_BYTES + NONCE_BYTES :], about)
        except (InvalidTag, ValueError):
            raise SecretError(
                f"{what} cannot be opened by the key {key_id!r}: it is another key of that id, or "
                "what is kept was changed. Nothing was changed by looking."
            ) from None
        return plain

    def fresh_key(self) -> bytes:
        """Return a key that nobody could guess."""
        return self._entropy.random_bytes(KEY_BYTES)

    def _cipher(self, key_id: str, salt: bytes, *, what: str = "What is kept") -> Any:  # noqa: ANN401 - a class of an extra
        derived = self.keys.derive(key_id, b"redrive payloads " + salt)
        if derived is None:
            raise SecretError(
                f"{what} is encrypted by the key {key_id!r}, which is not among those here "
                f"({', '.join(self.keys.ids) or 'there is none'}); add it to {VARIABLE} or the "
                "file of keys. Nothing was changed."
            )
        if len(self._ciphers) >= _MOST_KNOWN:
            self._ciphers.clear()
        cipher = self._ciphers[key_id, salt] = cipher_of(derived)
        return cipher

    def __repr__(self) -> str:
        return "Vault(…)"


def key_of(text: str) -> str | None:
    """Return the id of the key that a text is sealed by, or `None` if it is not."""
    if not (text.startswith("~") and text.endswith("~")) or ":" not in text:
        return None
    return text[1:].partition(":")[0]


def digest_by(key: bytes, digest: str) -> str:
    """Return a digest that tells nobody without the key what two bodies have in common."""
    return "~" + hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()


def check_is_installed() -> None:
    """Say so if what encrypts is not installed."""
    cipher_of(bytes(32))
