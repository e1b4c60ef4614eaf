"""Handlers whose effect is committed together with the delivery, in the store's own database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import assert_never

from redrive.errors import ConfigurationError, StoreError
from redrive.executor import Executor
from redrive.model.delivery import Leased
from redrive.model.outcome import Applied, Fault, Interrupted, Outcome, Succeeded
from redrive.policies.capture import capture
from redrive.policies.terms import Terms
from redrive.policies.upcasting import NO_UPCASTS, Upcasts
from redrive.store import AppliedLane, Effects, Ending, Following
from redrive.transports.function import FunctionTransport, Handler, is_async, name_of

__all__ = ["TransactionalTransport", "carry_effect", "check_transactional"]

_LEASE_LOST = Fault(
    error_class="LeaseLost",
    message="The lease had ended before the effect could be committed, so it was undone.",
    rule="lease",
)


def check_transactional(handler: Handler) -> None:
    """Refuse a handler that cannot be transactional."""
    if not is_async(handler):
        raise ConfigurationError(
            f"The handler {name_of(handler)} is a plain function, and a transactional one has to "
            "be async: the connection that it is handed belongs to the worker's event loop. "
            "Declare it with `async def`."
        )


class TransactionalTransport(FunctionTransport):
    """Calls a handler with the event and a connection in an open transaction.

    What it does with the connection is committed with the delivery when it returns, and undone
    when it raises, takes too long, or answers `Snooze` or `Cancel`.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        terms: Terms,
        executor: Executor,
        effects: Effects,
        upcasts: Upcasts = NO_UPCASTS,
    ) -> None:
        super().__init__(
            handler, terms=terms, executor=executor, takes_connection=True, upcasts=upcasts
        )
        self._effects = effects

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        (leased,) = deliveries
        try:
            return (
                await carry_effect(
                    leased,
                    lambda connection: self.attempt(leased, connection),
                    effects=self._effects,
                    at_most=self._terms.timeout,
                ),
            )
        except Exception as error:  # noqa: BLE001 - what the database says against the effect
            return (self._fault(error),)


async def carry_effect(
    leased: Leased,
    attempt: Callable[[object], Awaitable[Outcome]],
    *,
    effects: Effects,
    at_most: timedelta,
    follow: Following | None = None,
) -> Outcome:
    """Have the store commit what a try does with its connection, together with the delivery.

    With `follow`, deliveries behind it in its lane are carried along.
    What the database says against it at its commit is raised.
    """
    outcome: Outcome = Succeeded()

    async def effect(connection: object) -> bool:
        nonlocal outcome
        outcome = await attempt(connection)
        return isinstance(outcome, Succeeded)

    try:
        if follow is None:
            lane = AppliedLane(await effects.apply(leased, effect, at_most=at_most))
        else:
            lane = await effects.apply_lane(leased, effect, follow, at_most=at_most)
    except StoreError as error:
        return Interrupted(fault=capture(error, rule="store"))
    match lane.ending:
        case Ending.APPLIED:
            return Applied(followers=lane.followers)
        case Ending.REPEATED:
            return Applied(is_repeat=True, followers=lane.followers)
        case Ending.UNDONE:
            return outcome
        case Ending.REFUSED:
            # Settling it as this is refused in turn, and counted.
            return Interrupted(fault=_LEASE_LOST)
        case never:
            assert_never(never)
