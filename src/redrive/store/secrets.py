"""What a store promises about secrets: it keeps them encrypted, by keys that it never sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from redrive.model.audit import Actor
from redrive.model.secret import Secret

__all__ = ["KeptSecret", "SealedSecrets", "about_secret"]


class KeptSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, and what it is encrypted to."""

    secret: Secret
    sealed: bytes


class SealedSecrets(Protocol):
    """Secrets, encrypted before they come here. Each change leaves an audit entry."""

    async def set_secret(self, name: str, sealed: bytes, *, key_id: str, actor: Actor) -> Secret:
        """Keep a secret, in place of the one of that name if there is one, as the next version."""

    async def secrets(self) -> Sequence[Secret]:
        """Return all secrets, by name."""

    async def find_secret(self, name: str) -> KeptSecret | None:
        """Return a secret with what it is encrypted to."""

    async def reseal_secret(
        self, kept: KeptSecret, sealed: bytes, *, key_id: str, actor: Actor
    ) -> bool:
        """Keep the same secret encrypted otherwise; it stays the version that it is.

        `False`, and nothing has happened, if it was set, encrypted otherwise or deleted meanwhile.
        """

    async def delete_secret(self, name: str, *, actor: Actor) -> bool:
        """Forget a secret; tells whether there was one."""


def about_secret(name: str) -> bytes:
    """Return what is sealed in with a secret, so that it opens by its own name only."""
    return b"redrive secret " + name.encode()
