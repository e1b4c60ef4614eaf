"""What a store promises about encryption at rest."""

from __future__ import annotations

from typing import Protocol

from redrive.model.audit import Actor
from redrive.model.encryption import Encryption

__all__ = ["Encrypting", "LineSeal", "is_sealed_line"]


class LineSeal(Protocol):
    """What encrypts lines of files while the store is encrypted."""

    def seal(self, line: bytes) -> bytes:
        """Return a line as it is to be written: the same, or a text in JSON that hides it."""

    def open(self, line: bytes) -> bytes:
        """Return what was sealed; raises `SecretError` if it cannot be."""


def is_sealed_line(line: bytes) -> bool:
    """Tell whether a line has to be opened."""
    return line.startswith(b'"~')


class Encrypting(Protocol):
    """Payloads, and all that carries pieces of them, kept so that only who has the keys reads them.

    Whoever has the store open writes as it was begun last, from their next look at the routes on.
    """

    async def encryption(self) -> Encryption | None:
        """Return how the store keeps payloads; `None` if they never were encrypted."""

    async def encrypt(self, key_id: str, *, actor: Actor) -> Encryption:
        """Begin to keep payloads by a key, or as they are if it is empty; leaves an audit entry.

        Raises `SecretError` if the key is not here. Where it is so already, nothing happens.
        """

    async def reseal(self, *, limit: int = 200) -> int:
        """Bring so many rows to how they are to be kept; returns how many were looked at.

        None are left when it is 0. Whatever changes a row meanwhile comes first; two who do this
        at once take turns. Raises `SecretError` at what cannot be opened, and goes on with that.
        """

    async def check_keys(self) -> None:
        """Raise `SecretError` if what the store keeps cannot be read and written here."""
