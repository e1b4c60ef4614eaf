"""Different causes are different groups, and values make no difference, as libraries raise them."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.policies.fingerprint import fingerprint
from tests.causes.raised import CAUSES, FROM_POSTGRES, Cause, faults_of


def check(causes: Sequence[Cause], *, messages: int, groups: int) -> None:
    found = {cause.name: faults_of(cause) for cause in causes}
    told = {
        name: {fingerprint(fault, "billing") for fault in faults} for name, faults in found.items()
    }

    torn = {name: sorted(one.title for one in told[name]) for name in told if len(told[name]) > 1}
    assert torn == {}
    by_id: dict[str, list[str]] = {}
    for name, (one,) in told.items():
        by_id.setdefault(one.id, []).append(name)
    merged = {id_: names for id_, names in by_id.items() if len(names) > 1}
    assert merged == {}
    assert len({one.title for (one,) in told.values()}) == len(told)
    assert len({fault.message for faults in found.values() for fault in faults}) >= messages
    assert len(by_id) >= groups


def test_what_libraries_raise_is_grouped_by_cause() -> None:
    check(CAUSES, messages=80, groups=50)


def test_what_a_database_says_is_grouped_by_cause(postgres_url: str) -> None:
    check(FROM_POSTGRES(postgres_url.partition("?")[0]), messages=40, groups=40)
