"""People: users with passwords, and the sessions in which they are known again."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import TypeVar

from redrive.errors import (
    ConfigurationError,
    LoginThrottledError,
    NotFoundError,
    StoreFullError,
    StoreReadOnlyError,
)
from redrive.model.access import Grant, LoginSession, NewSession, Role, User, check_access_name
from redrive.model.audit import Actor
from redrive.model.duration import Duration, duration, spell_duration
from redrive.observer import Operated
from redrive.operations.context import OperationContext, with_reason
from redrive.policies.access import check_given, includes
from redrive.policies.password import (
    SALT_BYTES,
    check_password,
    cost_of,
    digest_password,
    is_password,
    nobodys_password,
)
from redrive.policies.secret import SECRET_BYTES, read_session, write_session
from redrive.store import KeptUser

__all__ = ["LoggingIn"]

T = TypeVar("T")

_MOST_LOGINS = 5
"""Tries of a name, or of a name from one address."""
_MOST_OF_ALL = 50
"""Tries of a name from all addresses, and from an address of all names."""
_LOGINS_WITHIN = timedelta(minutes=15)
_PLACES = 2**16
_NETWORK_BITS = 64
"""Whoever has an IPv6 address has this whole network."""
_SEEN_EVERY = timedelta(minutes=1)
_SHORTEST_SESSION = timedelta(minutes=2)
"""It is known only to the minute when something was seen of a session."""
_AT_ONCE = threading.BoundedSemaphore(2)
"""Each digest takes 16 MB, and whoever is at the door can have many made."""


class LoggingIn(OperationContext):
    """Let people in by passwords; `caller` is as with tokens."""

    async def add_user(
        self,
        name: str,
        password: str | None,
        *,
        role: Role | str,
        by: str,
        why: str,
        tenant: str | None = None,
        destinations: Sequence[str] = (),
        caller: Grant | None = None,
    ) -> User:
        """Add a user, who may log in from now on.

        Without a password only a proxy lets them in, until they are given one.
        """
        actor = with_reason(by, why, "add a user")
        # Whatever is no role says so itself, and in the same words.
        grant = Grant(role=role, tenant=tenant, destinations=destinations)  # type: ignore[arg-type]
        check_access_name(name, grant)
        check_given(caller, grant)
        if password is None:
            password = self._entropy.random_bytes(SECRET_BYTES).hex()
        kept = await self._digested(check_password(password, name=name))
        user = await (await self._to_change()).add_user(name, grant, kept, actor=actor)
        if user is None:
            raise ConfigurationError(f"There is a user {name!r} already; choose another name.")
        self._told_of("add_user", name, actor)
        return user

    async def users(self, *, caller: Grant | None = None) -> Sequence[User]:
        """Return all users, by name."""
        found = await (await self._store()).users()
        return [one for one in found if caller is None or includes(caller, one.grant)]

    async def find_user(self, name: str) -> User | None:
        """Return the user of that name, whom somebody else has let in, such as a proxy."""
        found = await (await self._store()).find_user(name)
        return None if found is None else found.user

    async def set_password(
        self, name: str, password: str, *, by: str, why: str, caller: Grant | None = None
    ) -> None:
        """Change a password; all sessions of the user end."""
        actor = with_reason(by, why, "change a password")
        await self._known(name, caller)
        kept = await self._digested(check_password(password, name=name))
        if not await (await self._to_change()).set_password(name, kept, actor=actor):
            raise _no_user(name)
        self._told_of("change_password", name, actor)

    async def remove_user(
        self, name: str, *, by: str, why: str, caller: Grant | None = None
    ) -> None:
        """Remove a user; all their sessions end."""
        actor = with_reason(by, why, "remove a user")
        await self._known(name, caller)
        if not await (await self._to_change()).remove_user(name, actor=actor):
            raise _no_user(name)
        self._told_of("remove_user", name, actor)

    async def check_password(
        self, name: str, password: str, *, address: str | None = None
    ) -> User | None:
        """Return the user whose name and password these are.

        It takes as long if there is no such user. Raises `LoginThrottledError` when there were five
        tries within a quarter of an hour, right or wrong, since somebody last logged in by that
        name. With the `address` that somebody tries from, five from there do not keep out others:
        of one name from all addresses, and from one address of all names, there may be fifty.
        """
        store = await self._to_change()
        places = _places(name, address)
        for place, most in places.items():
            until = await store.count_login(place, most=most, within=_LOGINS_WITHIN)
            if until is not None:
                raise LoginThrottledError(
                    f"Too many have tried to log in by this name; wait until {until:%H:%M} UTC.",
                    until=until,
                )
        found = await store.find_user(name) if isinstance(name, str) else None
        kept = nobodys_password(self._password_cost) if found is None else found.password
        is_right = await self._executor.submit(
            lambda: _limited(lambda: is_password(password, kept))
        )
        if found is None or not is_right:
            return None
        for place in places:
            await store.forget_logins(place)
        if cost_of(kept).work < self._password_cost.work:
            await store.renew_password(found, await self._digested(password))
        return found.user

    async def open_session(
        self, user: User, *, idle: Duration = "30m", lasts: Duration = "12h"
    ) -> NewSession | None:
        """Begin a session of a user who has just been let in.

        It ends after `lasts`, and before that when nothing was seen of it for as long as `idle`.
        `None` if the user was removed or the password changed since.
        """
        lengths = duration(idle, name="idle"), duration(lasts, name="lasts")
        if min(lengths) < _SHORTEST_SESSION:
            raise ConfigurationError(
                f"A session lasts {spell_duration(_SHORTEST_SESSION)} or longer."
            )
        secret, digest = write_session(self._entropy.random_bytes(SECRET_BYTES))
        store = await self._to_change()
        opened = await store.open_session(digest, user, idle=lengths[0], lasts=lengths[1])
        return None if opened is None else NewSession(session=opened, secret=secret)

    async def session(self, secret: str) -> LoginSession | None:
        """Return the session whose secret this is, unless it has ended."""
        digest = read_session(secret)
        if digest is None:
            return None
        store = await self._store()
        found = await store.find_session(digest)
        if found is None or not found.session.is_current(found.now):
            return None
        if found.now - found.session.seen_at >= _SEEN_EVERY:
            # Who only looks can do so in a store that takes nothing in any more.
            with suppress(StoreFullError, StoreReadOnlyError):
                await store.see_session(digest)
        return found.session

    async def close_session(self, secret: str) -> bool:
        """End a session, as who logs out wants it; tells whether there was one."""
        digest = read_session(secret)
        return digest is not None and await (await self._to_change()).close_session(digest)

    async def _known(self, name: str, caller: Grant | None) -> KeptUser:
        found = await (await self._store()).find_user(name)
        if found is None or not (caller is None or includes(caller, found.user.grant)):
            raise _no_user(name)
        return found

    async def _digested(self, password: str) -> str:
        salt, cost = self._entropy.random_bytes(SALT_BYTES), self._password_cost
        return await self._executor.submit(
            lambda: _limited(lambda: digest_password(password, salt, cost))
        )

    def _told_of(self, action: str, user: str, actor: Actor) -> None:
        self._observer.notice(Operated(action=action, by=actor.by, why=actor.why, user=user))


def _limited(work: Callable[[], T]) -> T:
    with _AT_ONCE:
        return work()


def _places(name: object, address: str | None) -> dict[int, int]:
    """Return where tries are counted, and how many there may be: the narrowest comes first.

    Who is out of tries for one name spends none of those that others share.
    """
    if address is None:
        return {_place(0, name): _MOST_LOGINS}
    network = _network(address)
    return {
        _place(1, f"{network} {name}"): _MOST_LOGINS,
        _place(2, network): _MOST_OF_ALL,
        _place(0, name): _MOST_OF_ALL,
    }


def _place(kind: int, what: object) -> int:
    digest = sha256(str(what).encode("utf-8", "surrogatepass")).digest()
    return kind * _PLACES + int.from_bytes(digest[:4], "big") % _PLACES


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(found), _NETWORK_BITS), strict=False))
    return str(found)


def _no_user(name: str) -> NotFoundError:
    return NotFoundError(f"There is no user {name!r}.")
