"""The turnstile at a gate: who passes during one claim, and what the gate looks like afterwards."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from redrive.claiming.passage import Passage, charged
from redrive.model.delivery import Kind
from redrive.model.gate import Gate
from redrive.model.limits import Limits

__all__ = ["Turnstile"]


class Turnstile:
    """Counts what passes a gate during one claim, within the allowance of the claiming worker."""

    def __init__(self, gate: Gate, allowed: Passage, *, total: int) -> None:
        self.gate = gate
        self.left = min(total, allowed.total)
        self.again_at = allowed.again_at
        self._allowed = allowed
        # Not in a dictionary: a kind's hash costs more than all that is done with it here.
        self._first = self._retries = self._replays = 0
        self._held_first = 0
        self._paced = 0

    def rewound(self) -> Turnstile:
        """Return the same turnstile before anybody passed it."""
        total = self.left + self._passed
        return Turnstile(self.gate, self._allowed, total=total)

    def admit(self, kind: Kind, *, was_held: bool) -> bool:
        """Let one delivery pass, if there is room for it.

        `was_held` says that it came due before the gate reopened.
        """
        is_held = was_held and kind is Kind.FIRST
        is_paced = was_held or kind is Kind.RETRY
        if is_paced and self._paced >= self._allowed.paced:
            return False
        if self.left <= 0 or not self._has_token(kind, is_held=is_held):
            return False
        self.left -= 1
        self._count(kind)
        self._held_first += is_held
        self._paced += is_paced
        return True

    @property
    def fresh(self) -> int:
        """How many fresh first attempts there are tokens for, room or not."""
        return self._allowed.first

    @property
    def holds_apart(self) -> bool:
        """Whether first attempts that were held may have to wait while fresh ones pass."""
        held = min(self._allowed.held_first, self._allowed.paced)
        return self.gate.reopened_at is not None and held < self._allowed.first

    def most(self, kind: Kind) -> int:
        """Return how many of a kind may pass at most, whatever becomes of the others."""
        allowed = self._allowed
        held = min(allowed.held_first, allowed.paced)
        match kind:
            case Kind.FIRST:
                return min(self.left, allowed.first + held)
            case Kind.RETRY:
                return min(self.left, allowed.retries, held)
            case Kind.REPLAY:
                return min(self.left, allowed.replays)
            case never:
                assert_never(never)

    def is_exhausted(self, kind: Kind, *, was_held: bool) -> bool:
        """Tell whether, room or not, no more of these may pass."""
        is_held = was_held and kind is Kind.FIRST
        is_paced = was_held or kind is Kind.RETRY
        is_at_pace = is_paced and self._paced >= self._allowed.paced
        return is_at_pace or not self._has_token(kind, is_held=is_held)

    def is_shut_for(self, kind: Kind) -> bool:
        """Tell whether nothing of a kind may pass, whether it was held or not."""
        return self.is_exhausted(kind, was_held=False) and self.is_exhausted(kind, was_held=True)

    def admit_first(self, count: int) -> int:
        """Let so many fresh first attempts pass, and return how many did."""
        passed = max(
            0,
            min(
                count,
                self.left,
                self._allowed.first - self._first + self._held_first,
            ),
        )
        self.left -= passed
        self._first += passed
        return passed

    def charged(self, limits: Limits, *, now: datetime) -> Gate:
        """Return the gate after all that has passed."""
        if not self._passed:
            return self.gate
        return charged(
            self.gate,
            limits,
            {Kind.FIRST: self._first, Kind.RETRY: self._retries, Kind.REPLAY: self._replays},
            held_first=self._held_first,
            paced=self._paced,
            now=now,
        )

    @property
    def _passed(self) -> int:
        return self._first + self._retries + self._replays

    def _count(self, kind: Kind) -> None:
        if kind is Kind.FIRST:
            self._first += 1
        elif kind is Kind.RETRY:
            self._retries += 1
        else:
            self._replays += 1

    def _has_token(self, kind: Kind, *, is_held: bool) -> bool:
        as_retries = self._retries + self._held_first
        match kind:
            case Kind.FIRST if is_held:
                return as_retries < self._allowed.held_first
            case Kind.FIRST:
                return self._first - self._held_first < self._allowed.first
            case Kind.RETRY:
                return (
                    as_retries < self._allowed.held_first and self._retries < self._allowed.retries
                )
            case Kind.REPLAY:
                return self._replays < self._allowed.replays
            case never:
                assert_never(never)
