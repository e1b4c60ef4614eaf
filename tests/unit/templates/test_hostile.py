"""Templates and conditions come from people who may mean harm; none of them gets out or goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.unit.templates.hostile import BOMBS, ESCAPES, Attempt

ROOT = Path(__file__).parents[3]
MOST_SECONDS = 0.1
MOST_BYTES = 50 * 2**20


@pytest.fixture(scope="module")
def told() -> list[dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unit.templates.ordeal"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def shown(attempt: Attempt, report: dict[str, Any]) -> str:
    return f"{attempt.family}: {str(attempt.source)[:100]}: {report}"


def test_there_is_enough_of_each_family() -> None:
    escapes, bombs = (Counter(one.family for one in table) for table in (ESCAPES, BOMBS))

    assert len(ESCAPES) >= 80
    assert len(BOMBS) >= 80
    assert min(escapes.values()) >= 5
    assert min(bombs.values()) >= 5
    assert escapes["in conditions"] >= 20
    assert bombs["in conditions"] >= 20


def test_nobody_gets_out(told: list[dict[str, Any]]) -> None:
    reports = list(zip(ESCAPES, told, strict=False))

    got_out = [
        shown(attempt, report)
        for attempt, report in reports
        if report["outcome"] not in {"refused", "ended"} and not is_harmless(attempt, report)
    ]

    assert len(told) == len(ESCAPES) + len(BOMBS)
    assert got_out == []


def is_harmless(attempt: Attempt, report: dict[str, Any]) -> bool:
    """What is rendered at all says nothing that is not in the event or in the template."""
    reads_a_field = attempt.source == "{{ payload.get('__class__') }}"
    return reads_a_field and bool(report["outcome"] == 'rendered "null"')


def test_each_ends_soon_and_takes_little_room(told: list[dict[str, Any]]) -> None:
    reports = list(zip([*ESCAPES, *BOMBS], told, strict=True))

    gone_on = [
        shown(attempt, report)
        for attempt, report in reports
        if not report.get("unharmed")
        or report["seconds"] > MOST_SECONDS
        or report["bytes"] > MOST_BYTES
    ]

    assert gone_on == []


def test_the_check_can_fail(told: list[dict[str, Any]]) -> None:
    """A measure that always gives nothing would find every bomb harmless."""
    bombs = told[len(ESCAPES) :]

    assert max(report["seconds"] for report in bombs) > 0.01
    assert max(report["bytes"] for report in bombs) > 2**20
    assert {report["outcome"].split()[0] for report in bombs} >= {"refused", "ended"}
