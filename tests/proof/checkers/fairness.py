"""I9: a tenant with due work waits at most one round for its turn."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.model.delivery import SUSPECT_AFTER, DeliveryId, Kind, Status
from redrive.store import ClaimRequest
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Entry, Ledger, Step

__all__ = ["Fair"]

_TURNS = 2
"""The rest of a turn under way when the tenant came, and one whole turn."""


class Fair(Check):
    """While a tenant has a first attempt due that a claim could take, no other gets two turns.

    Looked at where nothing but turns decides: no rate of first attempts, no tenant's own rate, and
    a gate that has not reopened. What was a probe there waits for those that were not.
    """

    name = "I9 fairness"

    def __init__(self) -> None:
        self._overtaken: dict[tuple[str, str], dict[str, int]] = {}
        self._probed: set[DeliveryId] = set()

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry = step.entry
        if step.how != "claimed" or entry is None or step.detail.is_alone:
            return
        name, tenant = entry.destination, entry.tenant
        if step.detail.is_probe:
            self._probed.add(entry.id)
        destination = ledger.promises[name].destination
        fairness = destination.fairness
        limits = destination.limits
        has_rates = limits.rate is not None or limits.shared_rate is not None
        if has_rates or fairness.rate is not None or fairness.rates:
            return
        self._overtaken.pop((name, tenant), None)
        if name in ledger.reopened:
            return
        request: ClaimRequest = step.call.given["request"]
        for other in self._waiting(ledger, entry, request, step):
            counts = self._overtaken.setdefault((name, other), {})
            counts[tenant] = counts.get(tenant, 0) + 1
            most = fairness.turn_of(tenant) * _TURNS
            if counts[tenant] > most:
                yield (
                    f"{tenant!r} got {counts[tenant]} attempts at {name} while {other!r} was due, "
                    f"and its turn is {fairness.turn_of(tenant)}"
                )

    def _waiting(
        self, ledger: Ledger, entry: Entry, request: ClaimRequest, step: Step
    ) -> list[str]:
        """Return the other tenants that the same claim could have served."""
        now = step.call.now
        return list(
            dict.fromkeys(
                one.tenant
                for one in ledger.of_destination[entry.destination]
                if one.status is Status.PENDING
                and not one.removed
                and one.tenant != entry.tenant
                and one.kind is Kind.FIRST
                and one.id not in self._probed
                and one.due <= now
                and (one.deadline is None or one.deadline > now)
                and one.generation in request.generations
                and one.crashes < SUSPECT_AFTER
                and (one.tenant, one.destination) not in ledger.paused_tenants
                and (one.tenant, None) not in ledger.paused_tenants
                and ledger.ahead(one) is None
            )
        )
