"""Who may: access tokens, made, listed, revoked, and known again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from redrive.errors import (
    ConfigurationError,
    NotFoundError,
    StoreFullError,
    StoreReadOnlyError,
    UsageError,
)
from redrive.model.access import Grant, NewToken, Role, Token, check_access_name
from redrive.model.audit import Actor
from redrive.model.duration import Duration, duration
from redrive.observer import Operated
from redrive.operations.context import OperationContext, check_limit, with_reason
from redrive.policies.access import check_given, includes
from redrive.policies.secret import ID_BYTES, SECRET_BYTES, is_same, read_token, write_token
from redrive.store import TokenTerms

__all__ = ["Granting"]

_SHORTEST = timedelta(seconds=1)
_USED_EVERY = timedelta(minutes=1)
"""How exactly is known when a token was last used; to know it better costs a write each time."""
_NOBODYS = "0" * 64


class Granting(OperationContext):
    """Let programs in by tokens, and know them again.

    `caller` is what somebody may on whose behalf it is done. They give nobody more than they have,
    and see nothing of who has more. Without one it is done by who has the store itself.
    """

    async def create_token(
        self,
        name: str,
        *,
        role: Role | str,
        by: str,
        why: str,
        tenant: str | None = None,
        destinations: Sequence[str] = (),
        expires_in: Duration | None = None,
        caller: Grant | None = None,
    ) -> NewToken:
        """Make a token and return it with its secret, which nobody can find out again."""
        actor = with_reason(by, why, "make a token")
        # Whatever is no role says so itself, and in the same words.
        grant = Grant(role=role, tenant=tenant, destinations=destinations)  # type: ignore[arg-type]
        check_access_name(name, grant)
        lasts = None if expires_in is None else duration(expires_in, name="expires_in")
        if lasts is not None and lasts < _SHORTEST:
            raise ConfigurationError(
                f"expires_in is {expires_in!r}; a token lasts one second or longer."
            )
        check_given(caller, grant)
        store = await self._to_change()
        while True:
            secret, kept = write_token(
                self._entropy.random_bytes(ID_BYTES), self._entropy.random_bytes(SECRET_BYTES)
            )
            terms = TokenTerms(id=kept.id, digest=kept.digest, name=name, grant=grant, lasts=lasts)
            # Another may have the id by chance.
            if (token := await store.add_token(terms, actor=actor)) is not None:
                break
        self._told("create_token", token.id, actor)
        return NewToken(token=token, secret=secret)

    async def tokens(
        self,
        *,
        before: str | None = None,
        limit: int | None = None,
        caller: Grant | None = None,
    ) -> Sequence[Token]:
        """Return all tokens, also those that have ended, the latest first.

        At most `limit` of them, those that come after the one with the id `before`.
        """
        if limit is not None:
            check_limit(limit)
        known = await (await self._store()).tokens()
        found = [one for one in known if caller is None or includes(caller, one.grant)]
        ids = [one.id for one in found]
        if before is not None and before not in ids:
            raise UsageError(
                f"There is no token with the id {before!r} to go on from; begin with the first."
            )
        start = 0 if before is None else ids.index(before) + 1
        return found[start:] if limit is None else found[start : start + limit]

    async def revoke_token(
        self, token_id: str, *, by: str, why: str, caller: Grant | None = None
    ) -> bool:
        """End a token for good; tells whether it was not revoked before."""
        actor = with_reason(by, why, "revoke a token")
        store = await self._to_change()
        found = await store.find_token(token_id)
        if found is None or not (caller is None or includes(caller, found.token.grant)):
            raise NotFoundError(f"There is no token with the id {token_id!r}.")
        is_new = await store.revoke_token(token_id, actor=actor)
        if is_new:
            self._told("revoke_token", token_id, actor)
        return bool(is_new)

    async def authenticate(self, secret: str) -> Token | None:
        """Return the token whose secret this is, unless it has expired or was revoked."""
        read = read_token(secret)
        if read is None:
            return None
        store = await self._store()
        found = await store.find_token(read.id)
        is_known = is_same(read.digest, _NOBODYS if found is None else found.digest)
        if found is None or not is_known or not found.token.is_current(found.now):
            return None
        used_at = found.token.last_used_at
        if used_at is None or found.now - used_at >= _USED_EVERY:
            # Who only looks can do so in a store that takes nothing in any more.
            with suppress(StoreFullError, StoreReadOnlyError):
                await store.use_token(read.id)
        return found.token

    def _told(self, action: str, token: str, actor: Actor) -> None:
        self._observer.notice(Operated(action=action, by=actor.by, why=actor.why, token=token))
