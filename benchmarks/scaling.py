"""From what was measured to internet scale: `python -m benchmarks.scaling` writes the page.

It reads what the last published run left beside `docs/performance.md`. Where a figure is missing,
the page says so; nothing on it is typed by hand.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks.capacity import ASSUMED, Assumptions, Capacity, capacity_of
from benchmarks.charts import Curve, line_chart
from benchmarks.contender import Arena
from benchmarks.environment import ROOT
from benchmarks.foresight import busiest_share, hours_behind
from benchmarks.page import Markers, markdown
from benchmarks.results import Results
from benchmarks.tables import Grid
from redrive.model.retention import Retention

__all__ = ["PAGE", "PUBLISHED", "computed", "main", "picture", "read_published", "write_scaling"]

PAGE = ROOT / "docs" / "scaling.md"
PUBLISHED = ROOT / "docs" / "performance" / "results.json"
PICTURE = "catching_up.svg"
MARKERS = Markers(of="python -m benchmarks.scaling")
_STORES = {Arena.POSTGRES: "PostgreSQL", Arena.SQLITE: "SQLite"}
_UNKNOWN = "not measured"
_CAPACITIES = ((2.2, "limit"), (2.5, "peer"), (3.0, "other"), (4.0, "engine"))
_OUTAGES = (0.25, 1.0, 4.0, 12.0)
_NODES = (2, 4, 16, 64)
_KEYS = 50_000
_EXPONENTS = (0.5, 0.8, 1.0)
_SEEDS = range(5)
_CATCHING_UP = (
    "Hours until nothing waits any more, if the outage begins at the worst hour for that. What "
    "arrives follows the day, with {peak:g} times the mean at noon."
)
_SKEW = (
    "The busiest node as a multiple of the mean, when {keys:,} keys are spread over nodes by a "
    "hash. The share of a key falls with its rank to the power in the head of the column; the "
    "middle of {draws} draws."
)


def main() -> int:
    """Write the page and its picture."""
    write_scaling(read_published(), PAGE)
    print(f"written: {os.path.relpath(PAGE)}")
    return 0


def read_published(path: Path = PUBLISHED) -> Results:
    """Return what was published last, or results in which nothing was measured."""
    if not path.exists():
        return Results()
    return Results.from_document(json.loads(path.read_text("utf-8")))


def write_scaling(results: Results, page: Path) -> None:
    """Put the tables between the markers of the page, and the picture into a folder beside it."""
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    (folder / PICTURE).write_text(picture(), encoding="utf-8")
    text = MARKERS.replaced(page.read_text("utf-8"), computed(results, folder=folder.name))
    page.write_text(text, encoding="utf-8")


def computed(results: Results, *, folder: str, assumed: Assumptions = ASSUMED) -> str:
    """Return everything that follows from results and assumptions, as Markdown."""
    nodes = [capacity_of(results, store, assumed) for store in _STORES]
    parts = [
        "### What one node carries",
        markdown(_carried(nodes)),
        f"### Nodes for {assumed.per_day:,.0f} events a day",
        _asked(assumed),
        "\n".join(_needed(one) for one in nodes),
        "### What breaks first",
        *(_broken(one) for one in nodes),
        "### Room, writes and connections",
        "\n".join([*(_stored(one) for one in nodes), _connected(nodes[0])]),
        "### Simulated: catching up after an outage",
        _CATCHING_UP.format(peak=assumed.peak),
        f"![Catching up after an outage]({folder}/{PICTURE})",
        markdown(_caught_up(assumed)),
        "### Simulated: keys that are not alike",
        _SKEW.format(keys=_KEYS, draws=len(_SEEDS)),
        markdown(_skewed()),
    ]
    return "\n\n".join(parts) + "\n"


def picture() -> str:
    """Draw how long catching up takes."""
    curves = []
    for capacity, kind in _CAPACITIES:
        points = [
            (outage * 60, hours)
            for outage in _OUTAGES
            if (hours := _hours(capacity, outage)) is not None
        ]
        curves.append(Curve(name=f"{capacity:g} x the mean", points=points, kind=kind))
    return line_chart(
        "Catching up after an outage",
        x_title="minutes that the outage lasts",
        y_title="hours until nothing waits",
        curves=curves,
    )


def _hours(capacity: float, outage: float, peak: float = ASSUMED.peak) -> float | None:
    return hours_behind(peak=peak, capacity=capacity, outage=outage)


def _carried(nodes: list[Capacity]) -> Grid:
    rows = [
        ["published by 100 tasks, per second", *(_count(one.published) for one in nodes)],
        ["drained by one worker, per second", *(_count(one.drained) for one in nodes)],
        ["both at once, per second", *(_both(one) for one in nodes)],
        ["with head room, per day", *(_count(one.per_day) for one in nodes)],
        ["bytes kept for an event and its delivery", *(_count(one.kept) for one in nodes)],
        ["of them in the log of events", *(_count(one.kept_in_log) for one in nodes)],
        ["bytes written until it is delivered", *(_count(one.written) for one in nodes)],
    ]
    return Grid(title="", head=["", *(_STORES[Arena(one.store)] for one in nodes)], rows=rows)


def _both(one: Capacity) -> str:
    if one.carried is None:
        return _UNKNOWN
    if one.at_half is not None:
        return f"{one.carried:,.0f} (measured: 2 x {one.at_half:,.0f})"
    return f"{one.carried:,.0f} (reckoned: 1 / (1 / {one.published:,.0f} + 1 / {one.drained:,.0f}))"


def _asked(assumed: Assumptions) -> str:
    busiest = assumed.per_second * assumed.peak
    return (
        f"{assumed.per_day:,.0f} / 86,400 s = {assumed.per_second:,.0f} per second in the mean, "
        f"{busiest:,.0f} in the busiest hour. A node must be able to do {assumed.peak:g} / "
        f"{assumed.utilisation:g} = {assumed.head_room:.2f} times the mean it is asked for."
    )


def _needed(one: Capacity) -> str:
    name, assumed = _STORES[Arena(one.store)], one.assumed
    if one.carried is None or one.per_day is None or one.nodes is None:
        return f"- **{name}**: {_UNKNOWN}, so nothing can be said."
    return (
        f"- **{name}**: {one.carried:,.0f} / {assumed.head_room:.2f} x 86,400 = {one.per_day:,.0f} "
        f"events a day and node; {assumed.per_day:,.0f} / {one.per_day:,.0f}, rounded up, are "
        f"**{one.nodes:,} nodes**."
    )


def _broken(one: Capacity) -> str:
    name, bounds = _STORES[Arena(one.store)], one.bounds()
    if not bounds:
        return f"On {name}: {_UNKNOWN}."
    rows = [[x.what, x.reckoning, f"{x.per_day:,.0f}"] for x in bounds]
    head = [f"{name}, first what ends first", "reckoning", "events a day"]
    return markdown(Grid(title="", head=head, rows=rows))


def _stored(one: Capacity) -> str:
    name, assumed, kept = _STORES[Arena(one.store)], one.assumed, Retention()
    if one.byte_days is None or one.kept is None or one.kept_in_log is None or one.written is None:
        return f"- **{name}**: {_UNKNOWN}."
    delivery = one.kept - one.kept_in_log
    days, days_of_delivery = kept.events.days, kept.delivered.days
    each = assumed.per_day / (one.nodes or 1)
    text = (
        f"- **{name}**: {one.kept_in_log:,.0f} bytes for {days} days and {delivery:,.0f} for "
        f"{days_of_delivery} are {one.byte_days:,.0f} bytes times days. All events of a day take "
        f"{assumed.per_day * one.byte_days / 1e12:,.1f} TB in all"
    )
    if one.nodes:
        text += f", {each * one.byte_days / 1e12:,.1f} TB on each of {one.nodes:,} nodes"
    return text + f"; {assumed.per_day * one.written / 1e12:,.1f} TB are written a day in all."


def _connected(one: Capacity) -> str:
    assumed = one.assumed
    text = (
        f"- **Connections** of PostgreSQL: {assumed.connections}, less {assumed.publishers} "
        f"publishing processes x {assumed.connections_a_publisher}, are enough for "
        f"{assumed.workers} worker processes x {assumed.connections_a_worker}."
    )
    if one.nodes:
        transactions = assumed.per_day / one.nodes
        days = assumed.transactions_before_freezing / transactions
        text += (
            f"\n- **Transaction numbers** of PostgreSQL: were each event published by itself, "
            f"{transactions:,.0f} a day and node would have old rows frozen every {days:,.1f} days "
            "(`autovacuum_freeze_max_age`)."
        )
    return text


def _caught_up(assumed: Assumptions) -> Grid:
    def cell(capacity: float, outage: float) -> str:
        hours = _hours(capacity, outage, assumed.peak)
        return "never, for two weeks" if hours is None else f"{hours:,.1f}"

    return Grid(
        title="",
        head=["a node can do", *(f"outage of {outage:g} h" for outage in _OUTAGES)],
        rows=[
            [f"{capacity:g} x the mean", *(cell(capacity, outage) for outage in _OUTAGES)]
            for capacity, _ in _CAPACITIES
        ],
    )


def _skewed() -> Grid:
    def cell(nodes: int, exponent: float) -> str:
        share = busiest_share(nodes=nodes, keys=_KEYS, exponent=exponent, seeds=_SEEDS)
        return f"{share:.2f} x"

    return Grid(
        title="",
        head=["nodes", *(f"power {exponent:g}" for exponent in _EXPONENTS)],
        rows=[
            [f"{nodes}", *(cell(nodes, exponent) for exponent in _EXPONENTS)] for nodes in _NODES
        ],
    )


def _count(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
