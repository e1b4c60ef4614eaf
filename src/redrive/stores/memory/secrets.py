"""Secrets, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.clock import Clock
from redrive.model.audit import Actor
from redrive.model.secret import Secret
from redrive.store import KeptSecret
from redrive.stores.memory.tables import Tables
from redrive.stores.secrets import next_secret

__all__ = ["MemorySecrets"]


class MemorySecrets(Tables):
    """`SealedSecrets` over the tables."""

    def __init__(self, clock: Clock, history: int) -> None:
        super().__init__(clock, history)
        self._secrets: dict[str, KeptSecret] = {}

    async def set_secret(self, name: str, sealed: bytes, *, key_id: str, actor: Actor) -> Secret:
        with self._lock:
            kept, now = self._secrets.get(name), self._clock.now()
            before = None if kept is None else kept.secret
            secret = next_secret(before, name, key_id=key_id, actor=actor, now=now)
            self._secrets[name] = KeptSecret(secret=secret, sealed=sealed)
            self._note("set_secret", actor, now=now, count=1, detail=name)
            return secret

    async def secrets(self) -> Sequence[Secret]:
        with self._lock:
            return [kept.secret for _, kept in sorted(self._secrets.items())]

    async def find_secret(self, name: str) -> KeptSecret | None:
        with self._lock:
            return self._secrets.get(name)

    async def reseal_secret(
        self, kept: KeptSecret, sealed: bytes, *, key_id: str, actor: Actor
    ) -> bool:
        with self._lock:
            name = kept.secret.name
            if self._secrets.get(name) != kept:
                return False
            secret = msgspec.structs.replace(kept.secret, key_id=key_id)
            self._secrets[name] = KeptSecret(secret=secret, sealed=sealed)
            self._note("rotate_secret", actor, now=self._clock.now(), count=1, detail=name)
            return True

    async def delete_secret(self, name: str, *, actor: Actor) -> bool:
        with self._lock:
            if self._secrets.pop(name, None) is None:
                return False
            self._note("delete_secret", actor, now=self._clock.now(), count=1, detail=name)
            return True
