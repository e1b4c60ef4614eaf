"""The study of sending by each way, small and by those that need no broker; and its targets."""

from __future__ import annotations

from benchmarks.contender import Run
from benchmarks.results import Results
from benchmarks.studies.sending import WAYS, bare, compare
from benchmarks.study import Scale
from benchmarks.targets import TARGETS, Word, judge
from tests.benchmarks.campaigns import part

SMALL = Scale(rounds=1, large=100, sample=100, seconds=0.02, small=10)
OF = part("redrive_sqlite", "sending", "promises")


async def test_a_way_and_its_bare_client_send_by_turns() -> None:
    points = [
        run.point
        for way in ("loki", "sentry")
        async for run in compare(way, WAYS[way], SMALL)
        if run.figures["per_second"] > 0
    ]

    assert points == ["loki, bare", "loki", "sentry, bare", "sentry"]


def test_each_way_is_judged_by_its_bare_client() -> None:
    results = Results()
    for way in WAYS:
        results.add(OF, Run(figures={"per_second": 69.0}, point=way))
        results.add(OF, Run(figures={"per_second": 100.0}, point=bare(way)))

    verdicts = [one for one in judge(results) if one.word is not Word.UNKNOWN]

    assert {(one.found, one.word) for one in verdicts} == {("69%", Word.MISSED)}
    assert len(verdicts) == len(WAYS)
    assert len([one for one in TARGETS if one.name.startswith("sending by")]) == len(WAYS)
