"""Trying a service out: one request is sent now, and leaves no delivery."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.errors import UsageError, not_found
from redrive.model.event import NewEvent
from redrive.model.request_log import LoggedRequest
from redrive.observer import Operated
from redrive.operations.context import OperationContext, check_limit
from redrive.operations.testing import ServiceTest

__all__ = ["TryingOut"]


class TryingOut(OperationContext):
    """Find out whether a service takes what it is sent, now and lately."""

    async def request_log(self, name: str, *, limit: int = 50) -> Sequence[LoggedRequest]:
        """Return the last requests to a destination, the latest first: successes too, if kept.

        A worker writes them down every ten seconds, as its `request_log` says.
        """
        check_limit(limit)
        found = await (await self._store()).logged_requests(name, limit=limit)
        if not found:
            known = [one.name for one in (await (await self._store()).routes()).destinations]
            if name not in known:
                raise not_found(name, known, what="destination")
        return [
            msgspec.structs.replace(one, error=self._redaction.text(one.error)) for one in found
        ]

    async def try_service(
        self,
        name: str,
        payload: object = None,
        *,
        type: str = "test",  # noqa: A002 - as an event calls it
        key: str | None = None,
        tenant: str | None = None,
        rule: str | None = None,
        by: str,
        why: str = "",
    ) -> ServiceTest:
        """Send one request to a service now, and return it with its answer, without secrets.

        It goes through the gate of the service, as deliveries do, is tried once, and leaves no
        delivery. With a `rule`, it has the shape that the rule gives such an event now, whether the
        rule is enabled or not.
        """
        store = await self._to_change()
        pin = ""
        if rule is not None:
            found = await store.find_rules([rule])
            if not found:
                known = (await store.gateway([name])).rules
                raise not_found(rule, [one.name for one in known], what=f"rule to {name!r}:")
            if found[0].service != name:
                raise UsageError(
                    f"The rule {rule!r} leads to the service {found[0].service!r}, not to {name!r}."
                )
            pin = found[0].pin
        event = NewEvent(type=type, payload=payload, key=key, tenant=tenant)
        if self._testing is None:
            raise UsageError("Services are tested through an app, or through its server.")
        tested = await self._testing.test(name, event, pin)
        self._observer.notice(Operated(action="try_service", by=by, why=why, destination=name))
        if tested.exchange is None:
            return tested
        shown = self._redaction.exchange(tested.exchange)
        return msgspec.structs.replace(tested, exchange=shown)
