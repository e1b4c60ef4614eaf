"""Worlds with more destinations than a claim asks, where most have little and many are held."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.model.fairness import Fairness
from redrive.model.limits import Breaker, Rate, SharedRate

if TYPE_CHECKING:
    from tests.simulation.plan import Plan

__all__ = ["CROWDED", "LARGE", "crowded", "thronged"]

CROWDED = 0.15
"""The share of calm worlds that have dozens of destinations, many of them held back."""
LARGE = 2_000
"""How many characters a large payload has more than others."""

_HELD_BY: tuple[dict[str, Any], ...] = (
    {},
    {"rate": Rate(per_second=0.5, burst=1.0)},
    {"concurrency": 1, "slow": 0.5},
    {"fairness": Fairness(rate=Rate(per_second=1.0, burst=1.0))},
    {"retry_rate": Rate(per_second=0.5, burst=1.0), "transient": 0.5},
    {"breaker": Breaker(failures=1, open_for="2s"), "transient": 0.5},
)
_SHUT_BY: tuple[dict[str, Any], ...] = (
    {"breaker": Breaker(failures=1, open_for="1s", longest_open="8s"), "transient": 0.9},
    {"breaker": Breaker(failures=2, open_for="3s", probes=2, ramp="2s"), "down": ((0.0, 60.0),)},
    {"throttling": 0.5, "retry_after": 5.0},
    {"shared_rate": SharedRate("throng", Rate(per_second=8.0, burst=2.0))},
    {"replay_rate": Rate(per_second=1.0, burst=1.0), "max_attempts": 1, "transient": 0.5},
)
_WANTS = (("a.x",), ("b.x",), ("c.x",), ("b.*", "c.x"))


def crowded(plan: Plan, chance: Random) -> Plan:
    """Let there be more destinations than a claim asks: most have little, many are held."""
    plan = _joined_by(plan, chance, chance.choice([12, 25, 40]), _HELD_BY, name="c")
    return msgspec.structs.replace(
        plan,
        events=min(plan.events, 15),
        few=chance.choice([0, 8]),
        page=chance.choice([1, 7, 256]),
    )


def thronged(plan: Plan, chance: Random) -> Plan:
    """Let there be at least forty, some of them shut or removed, and payloads that fill a claim.

    There are as many in a world where nothing is calm: what is there is moved and given to others,
    and one may come late.
    """
    missing = max(0, chance.choice([40, 40, 50]) - len(plan.destinations))
    plan = _joined_by(plan, chance, missing, (*_HELD_BY, *_SHUT_BY, {}), name="t")
    return msgspec.structs.replace(
        plan,
        events=min(plan.events, chance.choice([6, 12])),
        few=chance.choice([0, 8, 8]),
        page=chance.choice([7, 256]),
        concurrency=chance.choice([plan.concurrency, 3, 12]),
        large=chance.choice([0.0, 0.3, 0.8]),
        most_bytes=3 * LARGE // 2,
        removes=chance.random() < 0.4,
    )


def _joined_by(
    plan: Plan, chance: Random, number: int, held_by: tuple[dict[str, Any], ...], *, name: str
) -> Plan:
    crowd = tuple(
        msgspec.structs.replace(
            chance.choice(plan.destinations),
            name=f"{name}{one:02}",
            patterns=chance.choice(_WANTS),
            **chance.choice(held_by),
        )
        for one in range(number)
    )
    releases = {"next_release": (*plan.next_release, *crowd)} if plan.next_release else {}
    return msgspec.structs.replace(plan, destinations=(*plan.destinations, *crowd), **releases)
