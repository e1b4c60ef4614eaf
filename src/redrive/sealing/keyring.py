"""Key rings: the keys that values are sealed with, by their ids, and where they come from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from pathlib import Path

from redrive.clock import Entropy
from redrive.errors import ConfigurationError, SecretError
from redrive.sealing.envelope import (
    KEY_BYTES,
    NONCE_BYTES,
    Envelope,
    close_envelope,
    open_envelope,
)

__all__ = ["VARIABLE", "KeyRing", "KeySource"]

VARIABLE = "REDRIVE_KEYS"
"""The variable of the environment that has keys in it."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_HOW = (
    "write one as an id, a colon and 32 random bytes in base64, such as "
    '"k1:" and what `openssl rand -base64 32` prints'
)


class KeyRing:
    """Keys by their ids: the first seals, and each opens what was sealed with it.

    It shows itself by its ids only.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)

    @classmethod
    def read(cls, text: str, *, origin: str) -> KeyRing:
        """Read keys, one to a line or parted by commas; the lines that begin with # are not read.

        >>> KeyRing.read("k1:" + "A" * 43 + "=", origin="an example")
        KeyRing(k1)
        """
        keys: dict[str, bytes] = {}
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        for one in ",".join(lines).split(","):
            if not one.strip():
                continue
            key_id, _, encoded = one.strip().partition(":")
            if key_id in keys:
                raise ConfigurationError(
                    f"The keys of {origin} have the id {key_id!r} twice; give each its own."
                )
            _check_id(key_id, encoded, origin)
            keys[key_id] = _decoded(encoded, origin)
        return cls(keys)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys, that of the one which seals first."""
        return tuple(self._keys)

    @property
    def current(self) -> str:
        """The id of the key that seals."""
        if not self._keys:
            raise ConfigurationError(
                f"There is no key to encrypt with: set {VARIABLE}, or keys_file to a file with "
                f"keys in it; {_HOW}."
            )
        return next(iter(self._keys))

    def seal(self, plain: bytes, *, about: bytes, entropy: Entropy) -> bytes:
        """Return what only who has the key can read; `about` must be said again to open it."""
        current = self.current
        return close_envelope(
            plain,
            key_id=current,
            key=self._keys[current],
            nonce=entropy.random_bytes(NONCE_BYTES),
            about=about,
        )

    def open(self, written: bytes, *, about: bytes, what: str) -> bytes:
        """Return what was sealed, or say which key is missing; nothing is changed by that."""
        envelope = Envelope.read(written)
        if envelope is None:
            raise SecretError(f"{what} was kept in a form that this version does not know.")
        if (key := self._keys.get(envelope.key_id)) is None:
            raise SecretError(
                f"{what} is encrypted by the key {envelope.key_id!r}, which is not among those "
                f"here ({', '.join(self.ids) or 'there is none'}); add it to {VARIABLE} or the "
                "file of keys. Nothing was changed."
            )
        plain = open_envelope(envelope, key=key, about=about)
        if plain is None:
            raise SecretError(
                f"{what} cannot be opened by the key {envelope.key_id!r}: it is another key of "
                "that id, or what is kept was changed. Nothing was changed by looking."
            )
        return plain

    def derive(self, key_id: str, purpose: bytes) -> bytes | None:
        """Return a key for one purpose, made of the key of that id, or `None` if it is not here."""
        key = self._keys.get(key_id)
        return None if key is None else hmac.new(key, purpose, hashlib.sha256).digest()

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self.ids)})"


class KeySource:
    """Where the keys come from: a file, which is read again when it has changed, or a variable."""

    def __init__(
        self, keys_file: str = "", *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._file = Path(keys_file) if keys_file else None
        self._environment = os.environ if environment is None else environment
        self._read: tuple[object, KeyRing] | None = None

    def __call__(self) -> KeyRing:
        """Return the keys there are now; without any, a ring that opens nothing."""
        written = self._environment.get(VARIABLE, "")
        if self._file is None:
            return self._ring(written, written, origin=f"the variable {VARIABLE}")
        if written.strip():
            raise ConfigurationError(
                f"There are keys in the variable {VARIABLE}, and keys_file names others; keep "
                "them in one place, so that nobody looks at the other in vain."
            )
        try:
            stat = self._file.stat()
            stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if self._read is not None and self._read[0] == stamp:
                return self._read[1]
            text = self._file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"The file of keys, {self._file}, cannot be read: {_reason(error)}."
            ) from None
        return self._ring(stamp, text, origin=str(self._file))

    def _ring(self, stamp: object, text: str, *, origin: str) -> KeyRing:
        if self._read is None or self._read[0] != stamp:
            self._read = stamp, KeyRing.read(text, origin=origin)
        return self._read[1]


def _check_id(key_id: str, encoded: str, origin: str) -> None:
    # What has no colon may be a key: it is not shown.
    if not encoded or not _ID.fullmatch(key_id):
        raise ConfigurationError(f"The keys of {origin} have one without an id; {_HOW}.")


def _decoded(encoded: str, origin: str) -> bytes:
    try:
        key = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"The keys of {origin} have one that is not {KEY_BYTES} bytes in base64; {_HOW}."
        )
    return key


def _reason(error: Exception) -> str:
    return (error.strerror or "it is no file") if isinstance(error, OSError) else "it is no text"
