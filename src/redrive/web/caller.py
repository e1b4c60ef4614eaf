"""Callers: who asks, what they may, and how often."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec

from redrive.clock import Clock
from redrive.model.access import Grant, LoginSession, Role, Token, User
from redrive.model.limits import Rate
from redrive.operations import Operations
from redrive.policies.access import narrowed, refusal
from redrive.web.problem import ProblemError

__all__ = ["LOCAL", "Caller", "OpenDoor", "Turnpike"]

_LOOK_EVERY_SECONDS = 1.0
_MOST_CALLERS = 10_000


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: `by` in the audit log, `source` of what they publish, and what they may.

    `has_session` is whether they have logged in, and so may log out.
    """

    by: str
    source: str
    grant: Grant
    has_session: bool = False

    @classmethod
    def of(cls, token: Token) -> Caller:
        """Return the bearer of a token."""
        return cls(by=token.by, source=token.source, grant=token.grant)

    @classmethod
    def in_session(cls, session: LoginSession) -> Caller:
        """Return the user who has logged in."""
        user = session.user
        return cls(by=session.by, source=user.source, grant=user.grant, has_session=True)

    @classmethod
    def by_proxy(cls, user: User) -> Caller:
        """Return the user whom a proxy has let in."""
        return cls(by=f"{user.by}:proxy", source=user.source, grant=user.grant)

    @property
    def is_limited(self) -> bool:
        """Whether they may see a part of the store only."""
        return self.grant.is_limited

    def operations(self, all_there_are: Operations) -> Operations:
        """Return the operations, within the part of the store that they may see."""
        return all_there_are.within(self.grant.scope) if self.is_limited else all_there_are

    def check(self, operation: str) -> None:
        """Refuse what they may do to nothing at all."""
        self._refuse(self._refusal(operation))

    def may(self, operation: str) -> bool:
        """Tell whether there is something that they may do this to."""
        return self._refusal(operation) is None

    def narrow(
        self, operation: str, *, tenant: str | None = None, destination: str | None = None
    ) -> tuple[str | None, str | None]:
        """Return the tenant and the destination that a question is about, if they may ask it."""
        tenant, destination = narrowed(self.grant, tenant=tenant, destination=destination)
        self._refuse(refusal(self.grant, operation, tenant=tenant, destination=destination))
        return tenant, destination

    def require_role(self, role: Role, what: str) -> None:
        """Refuse what needs another role."""
        if not self.grant.role.includes(role):
            self._refuse(f"{what} needs the role {role}, and yours is {self.grant.role}.")

    def _refusal(self, operation: str) -> str | None:
        some = self.grant.destinations[0] if self.grant.destinations else None
        return refusal(self.grant, operation, tenant=self.grant.tenant, destination=some)

    def _refuse(self, why: str | None) -> None:
        if why is not None:
            raise ProblemError(HTTPStatus.FORBIDDEN, "forbidden", why)


LOCAL = Caller(by="local", source="local", grant=Grant(role=Role.ADMIN))
"""Whoever reaches a port that only this machine can."""


class OpenDoor:
    """Stays open until there is a token or a user, then it is closed for good.

    Whether there is one is looked up once a second at most, while somebody asks.
    """

    def __init__(self, is_anybody_known: Callable[[], Awaitable[bool]], clock: Clock) -> None:
        self._is_anybody_known = is_anybody_known
        self._clock = clock
        self._is_closed = False
        self._looked_at = -math.inf
        self._looking = asyncio.Lock()

    async def is_open(self) -> bool:
        """Tell whether callers need neither a token nor a login."""
        if self._is_due:
            async with self._looking:
                if self._is_due:
                    self._is_closed = await self._is_anybody_known()
                    self._looked_at = self._clock.monotonic()
        return not self._is_closed

    @property
    def _is_due(self) -> bool:
        age = self._clock.monotonic() - self._looked_at
        return not self._is_closed and age >= _LOOK_EVERY_SECONDS


class Turnpike:
    """Lets each caller pass so many times in a time, in this process."""

    def __init__(self, rate: Rate | None, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._passed: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, caller: Caller) -> None:
        """Refuse who asks too often, and say when to try again."""
        if self._rate is None:
            return
        now, most = self._clock.monotonic(), float(self._rate.burst)
        tokens, at = self._passed.get(caller.by, (most, now))
        tokens = min(most, tokens + (now - at) * self._rate.per_second)
        if tokens < 1:
            wait = (1 - tokens) / self._rate.per_second
            raise ProblemError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too-many-requests",
                "You ask more often than this server allows; wait before you try again.",
                retry_after=str(int(wait) + 1),
            )
        self._passed[caller.by] = (tokens - 1, now)
        self._passed.move_to_end(caller.by)
        if len(self._passed) > _MOST_CALLERS:
            self._passed.popitem(last=False)
