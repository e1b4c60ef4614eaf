"""The inspector: hears every record as it is written, and has every checker look at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tests.proof.checkers.accounts import CountersRight, NoPhantom, NothingLost
from tests.proof.checkers.attempts import AttemptsBounded, CrashesCounted, SettledAsAnswered
from tests.proof.checkers.auto_replays import AutoReplaysInTime
from tests.proof.checkers.check import Check
from tests.proof.checkers.declarations import InForce
from tests.proof.checkers.endings import AllSettles, NoDrip, StopsInTime, WaitsForSomebody
from tests.proof.checkers.fairness import Fair
from tests.proof.checkers.gates import BreakerKept, LimitsKept
from tests.proof.checkers.leases import SettledOnce, StaleRefused
from tests.proof.checkers.ledger import Ledger, Promise
from tests.proof.checkers.order import InOrder, OneAtATime
from tests.proof.checkers.projections import LogReadWhole, ModelRight, ReadersKeep
from tests.proof.checkers.records import Call, Record
from tests.proof.checkers.replays import IdentityKept, OnlyDeadLetters
from tests.proof.checkers.routes import GivenOnce
from tests.proof.checkers.times import InItsTime

__all__ = ["CHECKS", "Inspector", "Violation"]

CHECKS: tuple[type[Check], ...] = (
    NothingLost,
    NoPhantom,
    GivenOnce,
    InForce,
    SettledOnce,
    StaleRefused,
    OneAtATime,
    InOrder,
    AttemptsBounded,
    SettledAsAnswered,
    CrashesCounted,
    BreakerKept,
    LimitsKept,
    Fair,
    IdentityKept,
    OnlyDeadLetters,
    LogReadWhole,
    ModelRight,
    ReadersKeep,
    InItsTime,
    AutoReplaysInTime,
    AllSettles,
    WaitsForSomebody,
    CountersRight,
    StopsInTime,
    NoDrip,
)
"""Every invariant."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant that was broken, by the record with this number."""

    check: str
    what: str
    index: int
    at: float


class Inspector:
    """Keeps the ledger, and collects what is wrong."""

    def __init__(
        self, promises: Mapping[str, Promise], checks: Iterable[type[Check]] = CHECKS
    ) -> None:
        self.ledger = Ledger(promises)
        self.violations: list[Violation] = []
        self._checks = [one() for one in checks]
        self._seers = [one for one in self._checks if type(one).see is not Check.see]
        self._hearers = [one for one in self._checks if type(one).hear is not Check.hear]
        self._heard = 0

    def hear(self, record: Record) -> None:
        """Take note of a record, and look whether all is well."""
        if isinstance(record, Call):
            for step in self.ledger.steps(record):
                for check in self._seers:
                    for what in check.see(self.ledger, step):
                        self._complain(check, what, record)
                self.ledger.apply(step)
        else:
            for check in self._hearers:
                for what in check.hear(self.ledger, record):
                    self._complain(check, what, record)
        self._heard += 1

    def _complain(self, check: Check, what: str, record: Record) -> None:
        self.violations.append(
            Violation(check=check.name, what=what, index=self._heard, at=record.at)
        )
