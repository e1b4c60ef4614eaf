"""Encrypting: payloads kept so that only who has the keys reads them, and how far that is."""

from __future__ import annotations

from collections.abc import Callable

from redrive.model.audit import Actor
from redrive.model.encryption import Encryption
from redrive.observer import Operated
from redrive.operations.context import OperationContext, with_reason
from redrive.sealing.vault import check_is_installed

__all__ = ["Encrypting"]

_BATCH = 500


class Encrypting(OperationContext):
    """Have the store keep payloads, and all that carries pieces of them, encrypted."""

    async def encryption(self) -> Encryption | None:
        """Return by which key payloads are kept, and how far that is; `None` if they never were."""
        return await (await self._store()).encryption()

    async def encrypt(self, *, by: str, why: str) -> Encryption:
        """Encrypt payloads by the first of the keys from now on, and by and by all there are.

        After another key was put in front this changes the key. Who publishes, and workers, need
        it from then on. What is there already is rewritten by workers, a few rows at a time.
        """
        actor = with_reason(by, why, "encrypt payloads")
        check_is_installed()
        return await self._begin("encrypt", self._keys().current, actor)

    async def decrypt(self, *, by: str, why: str) -> Encryption:
        """Keep payloads as they are from now on, and by and by decrypt all that are encrypted."""
        return await self._begin("decrypt", "", with_reason(by, why, "decrypt payloads"))

    async def finish_encryption(
        self, *, progress: Callable[[int], None] | None = None
    ) -> Encryption | None:
        """Rewrite all that is still to be, as workers do by themselves, and return how it stands.

        If something cannot be opened, it ends with a `SecretError`, and goes on there next time.
        """
        store = await self._to_change()
        while count := await store.reseal(limit=_BATCH):
            if progress is not None:
                progress(count)
        return await store.encryption()

    async def _begin(self, action: str, key_id: str, actor: Actor) -> Encryption:
        store = await self._to_change()
        before = await store.encryption()
        if before is None and not key_id:
            return Encryption(
                began_at=self._clock.now(), began_by=actor.by, finished_at=self._clock.now()
            )
        if before is not None and before.key_id == key_id:
            return before
        begun = await store.encrypt(key_id, actor=actor)
        self._observer.notice(Operated(action=action, by=actor.by, why=actor.why))
        return begun
