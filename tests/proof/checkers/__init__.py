"""The invariants of the design, each as a checker: for the simulation, crash tests and the soak."""

from __future__ import annotations

from tests.proof.checkers.check import Check
from tests.proof.checkers.inspector import CHECKS, Inspector, Violation
from tests.proof.checkers.ledger import Ledger, Promise, Step

__all__ = ["CHECKS", "Check", "Inspector", "Ledger", "Promise", "Step", "Violation"]
