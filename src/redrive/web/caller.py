"""Callers: who asks, what they may, and how often."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec

from redrive.clock import Clock
from redrive.model.access import Grant, Role, Token
from redrive.model.limits import Rate
from redrive.policies.access import narrowed, refusal
from redrive.web.problem import ProblemError, not_there

__all__ = ["LOCAL", "Authenticate", "Caller", "OpenDoor", "Turnpike"]

_LOOK_EVERY_SECONDS = 1.0


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: `by` in the audit log, `source` of what they publish, and what they may."""

    by: str
    source: str
    grant: Grant

    @classmethod
    def of(cls, token: Token) -> Caller:
        """Return the bearer of a token."""
        return cls(by=token.by, source=token.source, grant=token.grant)

    @property
    def is_limited(self) -> bool:
        """Whether they may see a part of the store only."""
        return self.grant.is_limited

    def check(self, operation: str) -> None:
        """Refuse what they may do to nothing at all."""
        grant = self.grant
        some = grant.destinations[0] if grant.destinations else None
        self._refuse(refusal(grant, operation, tenant=grant.tenant, destination=some))

    def narrow(
        self, operation: str, *, tenant: str | None = None, destination: str | None = None
    ) -> tuple[str | None, str | None]:
        """Return the tenant and the destination that a question is about, if they may ask it."""
        tenant, destination = narrowed(self.grant, tenant=tenant, destination=destination)
        self._refuse(refusal(self.grant, operation, tenant=tenant, destination=destination))
        return tenant, destination

    def sees(self, operation: str, *, tenant: str | None, destination: str | None = None) -> bool:
        """Tell whether they may do this to what belongs to that tenant and destination."""
        if not self.is_limited:
            return True
        if destination is None and self.grant.destinations:
            return False
        return refusal(self.grant, operation, tenant=tenant, destination=destination) is None

    def require(
        self, operation: str, *, tenant: str | None, destination: str | None = None
    ) -> None:
        """Say of what is not theirs that it is not there."""
        if not self.sees(operation, tenant=tenant, destination=destination):
            raise not_there()

    def require_role(self, role: Role, what: str) -> None:
        """Refuse what needs another role."""
        if not self.grant.role.includes(role):
            self._refuse(f"{what} needs the role {role}, and yours is {self.grant.role}.")

    def _refuse(self, why: str | None) -> None:
        if why is not None:
            raise ProblemError(HTTPStatus.FORBIDDEN, "forbidden", why)


Authenticate = Callable[[str], Awaitable[Caller | None]]
"""Finds out whose secret it is; `None` if it is nobody's."""

LOCAL = Caller(by="local", source="local", grant=Grant(role=Role.ADMIN))
"""Whoever reaches a port that only this machine can."""


class OpenDoor:
    """Stays open until there is a token, then it is closed for good.

    Whether there is one is looked up once a second at most, while somebody asks.
    """

    def __init__(self, has_tokens: Callable[[], Awaitable[bool]], clock: Clock) -> None:
        self._has_tokens = has_tokens
        self._clock = clock
        self._is_closed = False
        self._looked_at = -math.inf
        self._looking = asyncio.Lock()

    async def is_open(self) -> bool:
        """Tell whether callers need no token."""
        if self._is_due:
            async with self._looking:
                if self._is_due:
                    self._is_closed = await self._has_tokens()
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
        self._passed: dict[str, tuple[float, float]] = {}

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
