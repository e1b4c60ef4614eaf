"""Conditions: which events a rule is about, as an expression without loops."""

from __future__ import annotations

from redrive.conditions.condition import CONDITION_NAMES, Condition, compile_condition

__all__ = ["CONDITION_NAMES", "Condition", "compile_condition"]
