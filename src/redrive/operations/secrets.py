"""Secrets: set, listed, encrypted anew and deleted; read by nobody."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.errors import UsageError, not_found
from redrive.model.audit import Actor
from redrive.model.secret import Rotated, Secret, check_secret, check_secret_name
from redrive.observer import Operated
from redrive.operations.context import OperationContext, with_reason
from redrive.sealing import KeyRing
from redrive.store import KeptSecret, Store, about_secret

__all__ = ["KeepingSecrets"]

_TRIES = 10


class KeepingSecrets(OperationContext):
    """Keep secrets encrypted in the store. There is no operation that shows one."""

    async def secrets(self) -> Sequence[Secret]:
        """Return all secrets, by name: which key each is encrypted with, and who set it when."""
        return await (await self._store()).secrets()

    async def set_secret(self, name: str, value: str, *, by: str, why: str) -> Secret:
        """Keep a secret, in place of the one of that name; workers go by it within seconds."""
        actor = with_reason(by, why, "set a secret")
        sealed, key_id = self._sealed(check_secret_name(name), check_secret(value), self._keys())
        store = await self._to_change()
        secret = await store.set_secret(name, sealed, key_id=key_id, actor=actor)
        self._told_of_secret("set_secret", name, actor)
        return secret

    async def rotate_secrets(self, *, by: str, why: str) -> Rotated:
        """Encrypt all secrets by the current key; after that the keys before it are not needed.

        If one of them cannot be opened, nothing is changed.
        """
        actor = with_reason(by, why, "rotate keys")
        keys, store = self._keys(), await self._to_change()
        current = keys.current
        names = [one.name for one in await store.secrets() if one.key_id != current]
        found = [kept for name in names if (kept := await store.find_secret(name)) is not None]
        for kept in found:
            self._opened(kept, keys)
        rotated = [
            kept.secret.name for kept in found if await self._resealed(store, kept, keys, actor)
        ]
        for name in rotated:
            self._told_of_secret("rotate_secret", name, actor)
        kept_names = [one.name for one in await store.secrets() if one.name not in rotated]
        return Rotated(key_id=current, rotated=tuple(rotated), unchanged=tuple(kept_names))

    async def delete_secret(self, name: str, *, by: str, why: str) -> bool:
        """Forget a secret for good; what refers to it fails from then on, and says so."""
        actor = with_reason(by, why, "delete a secret")
        store = await self._to_change()
        if not await store.delete_secret(check_secret_name(name), actor=actor):
            known = [one.name for one in await store.secrets()]
            raise not_found(name, known, what="secret")
        self._told_of_secret("delete_secret", name, actor)
        return True

    async def _resealed(self, store: Store, kept: KeptSecret, keys: KeyRing, actor: Actor) -> bool:
        """Encrypt one secret anew, also if somebody sets it meanwhile; not if it is gone."""
        name = kept.secret.name
        for _ in range(_TRIES):
            sealed, key_id = self._sealed(name, self._opened(kept, keys), keys)
            if await store.reseal_secret(kept, sealed, key_id=key_id, actor=actor):
                return True
            found = await store.find_secret(name)
            if found is None or found.secret.key_id == keys.current:
                return False
            kept = found
        raise UsageError(f"The secret {name} changes all the time; rotate again later.")

    def _opened(self, kept: KeptSecret, keys: KeyRing) -> str:
        name = kept.secret.name
        return keys.open(kept.sealed, about=about_secret(name), what=f"The secret {name}").decode()

    def _sealed(self, name: str, value: str, keys: KeyRing) -> tuple[bytes, str]:
        sealed = keys.seal(value.encode(), about=about_secret(name), entropy=self._entropy)
        return sealed, keys.current

    def _told_of_secret(self, action: str, name: str, actor: Actor) -> None:
        self._observer.notice(Operated(action=action, by=actor.by, why=actor.why, secret=name))
