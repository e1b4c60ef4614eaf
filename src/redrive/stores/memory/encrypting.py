"""Encryption at rest, in memory: nothing is at rest."""

from __future__ import annotations

from redrive.errors import UsageError
from redrive.model.audit import Actor
from redrive.model.encryption import Encryption

__all__ = ["MemoryEncrypting"]


class MemoryEncrypting:
    """`Encrypting` where there is nothing to encrypt."""

    async def encryption(self) -> Encryption | None:
        return None

    async def encrypt(self, key_id: str, *, actor: Actor) -> Encryption:  # noqa: ARG002 - the contract
        raise UsageError(
            "The store is in memory and nothing of it is at rest, so there is nothing to encrypt."
        )

    async def reseal(self, *, limit: int = 200) -> int:  # noqa: ARG002 - the contract
        return 0

    async def check_keys(self) -> None:
        pass
