"""The frames of `redrive top`: values in, lines of text out, without a terminal."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from redrive import Breaker, Rate
from redrive.cli.show.spark import chart, sparkline
from redrive.cli.show.top.frame import frame
from redrive.cli.show.top.view import Reading, Sort, View
from redrive.model.delivery import DeliveryId
from redrive.model.destination import NOTHING
from redrive.model.gate import Gate, GateFigures, HalfOpen, Hold, Open, Pause
from redrive.model.limits import Limits
from redrive.model.position import LogPosition
from redrive.model.replay import ReplayState
from redrive.model.settlement import FailureReason
from redrive.store import (
    Checkpoint,
    DestinationFigures,
    DueWork,
    Figures,
    Group,
    LaneFigures,
    ProjectionFigures,
    Replay,
    Serving,
    WorkerFigures,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WITH_BREAKER = Limits(breaker=Breaker())


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def figures(
    *destinations: DestinationFigures, now: datetime = NOW, workers: Sequence[WorkerFigures] = ()
) -> Figures:
    return Figures(
        now=now,
        events=1_234,
        unrouted=0,
        refused_settlements=0,
        deleted=0,
        destinations=destinations,
        workers=tuple(workers) or (WorkerFigures(id="w1", seen_at=now, in_flight=3),),
    )


def destination(name: str, **counts: object) -> DestinationFigures:
    return replace(DestinationFigures(name=name, patterns=("*",)), **counts)


def gate(name: str, state: Gate, hold: Hold | None = None, **more: object) -> GateFigures:
    found = GateFigures(destination=name, at=NOW, gate=state, limits=WITH_BREAKER, hold=hold)
    return replace(found, **more)


def group(name: str, count: int, *, last_seen: datetime = NOW) -> Group:
    return Group(
        id=name,
        title=f"{name}: it broke",
        destination="crm",
        error_class=name,
        reason=FailureReason.TERMINAL,
        count=count,
        first_seen=ago(7_200),
        last_seen=last_seen,
        example=DeliveryId(7),
    )


def shown(reading: Reading, *, width: int = 80, height: int | None = None) -> str:
    return frame(View(store="sqlite:///shop.db").after(reading), width=width, height=height).plain


def line_of(text: str, word: str) -> str:
    return next(line for line in text.splitlines() if word in line)


def projection(name: str, *, count: int, seen: float, lag: int = 0) -> ProjectionFigures:
    place = LogPosition()
    return ProjectionFigures(
        checkpoint=Checkpoint(
            projection=name, began=place, position=place, count=count, worker="worker-1"
        ),
        now=NOW,
        lag={"order.paid": lag} if lag else {},
        is_at_least=False,
        oldest_at=ago(90) if lag else None,
        handed_over=2,
        parked_keys=1,
        seen_at=ago(seen),
    )


def test_projections_are_shown_with_how_far_and_how_fast_they_are() -> None:
    begun = figures(destination("orders", patterns=NOTHING), now=ago(2))
    fresh = (projection("orders", count=40, seen=1, lag=7), projection("totals", count=5, seen=600))
    view = View().after(
        Reading(figures=begun, projections=(projection("orders", count=20, seen=1),))
    )
    view = view.after(Reading(figures=replace(begun, now=NOW), projections=fresh))

    said = frame(view, width=100).plain

    assert line_of(said, "worker-1").split()[1:] == [
        "behind",
        "7",
        "1m30s",
        "10",
        "1",
        "worker-1",
    ]
    assert line_of(said, "nobody").split()[1:] == ["caught", "up", "-", "-", "2.5", "1", "nobody"]


def test_a_destination_is_one_line_with_all_its_counts() -> None:
    one = destination(
        "crm", pending=1_200, waiting=30, behind=4, in_flight=5, failed=6, oldest_due=ago(75)
    )

    said = shown(Reading(figures=figures(one)))

    headings = "Destination Pending Waiting Behind Flight Failed /s Minute Due for"
    assert " ".join(line_of(said, "Destination").split()) == headings
    assert " ".join(line_of(said, "crm").split()) == "· crm 1,200 30 4 5 6 1m15s"


def test_columns_that_would_be_empty_are_left_out() -> None:
    said = shown(Reading(figures=figures(destination("crm", pending=1))))

    assert "Waiting" not in said
    assert "Behind" not in said


@pytest.mark.parametrize(
    ("state", "hold", "sign", "words"),
    [
        (Gate(), None, "●", None),
        (
            Gate(breaker=Open(generation=1, since=ago(12), until=NOW + timedelta(seconds=43))),
            Hold.BREAKER_OPEN,
            "✗",
            "breaker open for 12 s, tried again in 43 s",
        ),
        (
            Gate(breaker=Open(generation=1, since=ago(12), times=3)),
            Hold.BREAKER_OPEN,
            "✗",
            "breaker open for 12 s, until it is reset, 3 times in a row",
        ),
        (
            Gate(breaker=HalfOpen(generation=1, since=ago(2), times=1, successes=1)),
            Hold.PROBING,
            "◐",
            "breaker half-open for 2 s, 1 of 3 successes",
        ),
        (
            Gate(pause=Pause(by="ann", why="they migrate", at=ago(180))),
            Hold.PAUSED,
            "‖",
            "paused by ann 3 min ago: they migrate",
        ),
        (Gate(), Hold.BLOCKED, "●", "blocked by a dead letter"),
        (Gate(), Hold.RETRY_BUDGET, "●", "retry budget of 10%"),
        (Gate(), Hold.RATE, "●", "rate limit of 50/s"),
        (Gate(), Hold.CONCURRENCY, "●", "concurrency of 4"),
    ],
)
def test_what_holds_a_destination_is_told_with_its_breaker(
    state: Gate, hold: Hold | None, sign: str, words: str | None
) -> None:
    limits = Limits(breaker=Breaker(), rate=Rate(per_second=50), retry_budget=0.1, concurrency=4)
    held = gate("crm", state, hold, limits=limits)

    said = shown(
        Reading(figures=figures(destination("crm", pending=9, oldest_due=ago(1))), gates=(held,))
    )

    lines = said.splitlines()
    [place] = [number for number, line in enumerate(lines) if line.startswith(f"{sign} crm")]
    assert lines[place + 1] == ("" if words is None else f"  {words}")


def test_a_wait_that_the_destination_asked_for_says_how_long_it_lasts() -> None:
    until = NOW + timedelta(seconds=43)
    held = gate("crm", Gate(slow_until=until), Hold.SLOWED, until=until)

    said = shown(Reading(figures=figures(destination("crm", pending=9)), gates=(held,)))

    assert "slowed as it asked (Retry-After), 43 s left" in said


def test_a_limit_that_holds_nothing_is_not_mentioned() -> None:
    held = gate("crm", Gate(), Hold.RATE)

    assert "rate limit" not in shown(Reading(figures=figures(destination("crm")), gates=(held,)))


def test_a_wide_frame_tells_what_holds_on_the_same_line() -> None:
    held = gate("crm", Gate(pause=Pause(by="ann", why="", at=ago(180))), Hold.PAUSED)

    said = shown(Reading(figures=figures(destination("crm")), gates=(held,)), width=120)

    assert line_of(said, "‖ crm").endswith("paused by ann 3 min ago")


def test_the_pace_is_what_was_delivered_between_two_frames() -> None:
    view = View().after(Reading(figures=figures(destination("crm", delivered=100), now=ago(2))))
    view = view.after(Reading(figures=figures(destination("crm", delivered=150))))

    said = frame(view, width=80).plain

    assert view.per_second("crm") == 25.0
    assert "25/s" in line_of(said, "events")
    assert line_of(said, "· crm").split()[5] == "25"


def test_the_first_frame_knows_no_pace() -> None:
    view = View().after(Reading(figures=figures(destination("crm", delivered=100))))

    assert view.per_second("crm") is None
    assert view.flow("crm", parts=4) == [None] * 4


def test_the_sparkline_is_the_last_minute_and_forgets_the_rest() -> None:
    view = View()
    for second in range(90):
        delivered = 10 * min(second, 60)
        reading = Reading(
            figures=figures(destination("crm", delivered=delivered), now=ago(89 - second))
        )
        view = view.after(reading)

    assert view.flow("crm", parts=6) == pytest.approx([10.0, 10.0, 10.0, 1.0, 0.0, 0.0])
    assert len(view.marks) <= 62


def test_a_frame_long_ago_counts_only_for_the_part_of_the_minute_it_covers() -> None:
    view = View().after(Reading(figures=figures(destination("crm"), now=ago(120))))
    view = view.after(Reading(figures=figures(destination("crm", delivered=240))))

    assert view.flow("crm", parts=3) == pytest.approx([2.0, 2.0, 2.0])


def test_delivered_deliveries_that_are_pruned_count_for_the_pace() -> None:
    before, after = destination("crm", delivered=500), destination("crm", delivered=20, pruned=487)
    view = View().after(Reading(figures=figures(before, now=ago(1))))
    view = view.after(Reading(figures=figures(after)))

    assert view.per_second("crm") == 7.0
    assert "507 delivered" in shown(Reading(figures=figures(after)))


def test_a_store_with_less_in_it_is_no_negative_pace() -> None:
    view = View().after(Reading(figures=figures(destination("crm", delivered=500), now=ago(1))))
    view = view.after(Reading(figures=figures(destination("crm", delivered=20))))

    assert view.per_second("crm") == 0.0


def test_a_clock_that_was_set_back_starts_the_minute_anew() -> None:
    later = Reading(figures=figures(destination("crm", delivered=9), now=NOW))
    earlier = Reading(figures=figures(destination("crm", delivered=9), now=ago(3_600)))

    view = View().after(later).after(earlier)

    assert len(view.marks) == 1
    assert view.per_second("crm") is None


def test_groups_that_grow_are_marked() -> None:
    early = (group("Grows", 5, last_seen=ago(10)), group("Rests", 3, last_seen=ago(3_600)))
    late = (group("Grows", 9), group("Rests", 3, last_seen=ago(3_600)))
    one = destination("crm", failed=12)
    view = View().after(Reading(figures=figures(one, now=ago(1)), groups=early))

    said = frame(view.after(Reading(figures=figures(one), groups=late)), width=80).plain

    assert " ".join(line_of(said, "Grows").split()).startswith("9 ▲ +4 just now crm Grows")
    assert " ".join(line_of(said, "Rests").split()).startswith("3 no 1 h ago crm Rests")


def test_stopped_lanes_are_shown_with_what_waits_behind_them() -> None:
    lane = LaneFigures(
        destination="mail",
        key="customer-3",
        head=DeliveryId(18),
        since=ago(120),
        reason=FailureReason.TERMINAL,
        waiting=44,
    )

    said = shown(Reading(figures=figures(destination("mail")), lanes=(lane,)))

    assert " ".join(line_of(said, "customer-3").split()) == (
        "customer-3 mail 44 18 terminal 2 min ago"
    )


def replay(number: int, state: ReplayState, **counts: object) -> Replay:
    one = Replay(
        id=number,
        state=state,
        by="ann",
        why="release 3",
        started_at=ago(60),
        changed_at=NOW,
        selected=40,
        destinations=("crm",),
    )
    return replace(one, **counts)


def test_replays_are_shown_with_how_far_they_have_come() -> None:
    running = replay(2, ReplayState.RUNNING, sent=12, delivered=9, failed=1)
    stopped = replay(1, ReplayState.STOPPED, sent=1, failed=1, reason="1 of 1 in the canary failed")

    said = shown(Reading(figures=figures(destination("crm")), replays=(running, stopped)))

    assert " ".join(line_of(said, "running").split()) == "2 running 12/40 9 1 crm release 3"
    assert line_of(said, "stopped").split()[:6] == ["1", "stopped", "1/40", "-", "1", "crm"]
    assert "1 of 1 in the canary failed" in line_of(said, "stopped")


def test_a_silent_worker_with_work_comes_first() -> None:
    workers = [
        WorkerFigures(id="busy", seen_at=NOW, in_flight=50),
        WorkerFigures(id="gone", seen_at=ago(300), in_flight=2),
        WorkerFigures(id="old", seen_at=ago(9_000), in_flight=0),
    ]

    said = shown(Reading(figures=figures(destination("crm"), workers=workers)))

    below = said[said.index("Worker") :].splitlines()[1:]
    assert [line.split()[0] for line in below] == ["gone", "busy", "old"]
    assert below[0].endswith("silent, 5 min ago")


def test_what_looks_lost_is_told_below_the_totals() -> None:
    odd = replace(figures(destination("crm")), unrouted=3, refused_settlements=2, deleted=5)

    said = shown(Reading(figures=odd))

    assert "3 events went nowhere · 2 late settlements refused · 5 deleted by people" in said
    assert "nowhere" not in shown(Reading(figures=figures(destination("crm"))))


def test_work_that_nobody_claims_is_told_below_the_totals() -> None:
    elsewhere = Serving(destinations=("mail",), generations=("default",))
    worker = WorkerFigures(id="w1", seen_at=NOW, in_flight=0, serving=elsewhere)
    due = DueWork(destination="crm", generation="default", count=4)
    lost = replace(figures(destination("crm", pending=4), workers=[worker]), due=(due,))

    said = shown(Reading(figures=lost))

    assert "1 destination orphaned · 4 deliveries stranded" in said


def test_an_empty_store_says_what_is_missing() -> None:
    empty = replace(figures(), workers=())

    said = shown(Reading(figures=empty))

    assert "No destination yet" in said
    assert "No worker is running." in said


def test_late_work_without_a_worker_is_told_first() -> None:
    late = replace(figures(destination("crm", pending=1, oldest_due=ago(600))), workers=())

    assert shown(Reading(figures=late)).splitlines()[1] == (
        "Work has been due for 10 min, and no worker is alive."
    )


def test_a_store_that_went_away_leaves_the_last_picture_below_the_error() -> None:
    view = View(store="sqlite:///shop.db").after(Reading(figures=figures(destination("crm"))))

    away = view.without_store("There is no store at shop.db; create it.", timedelta(seconds=4))
    said = frame(away, width=80).plain

    assert "No answer for 4 s: There is no store at shop.db" in said
    assert "crm" in said
    assert (
        "No answer"
        not in frame(away.after(Reading(figures=figures(destination("crm")))), width=80).plain
    )


def busy(count: int) -> Reading:
    """A reading with more of everything than fits a small screen."""
    gates = [
        gate(f"d{n:02}", Gate(pause=Pause(by="ann", why="x" * 200, at=ago(9))), Hold.PAUSED)
        for n in range(count)
    ]
    names = [destination(f"d{n:02}", pending=n, failed=n, behind=n) for n in range(count)]
    workers = [WorkerFigures(id=f"w{n}", seen_at=NOW, in_flight=n) for n in range(count)]
    return Reading(
        figures=figures(*names, workers=workers),
        gates=tuple(gates),
        groups=tuple(group(f"G{n}", 10 - n) for n in range(10)),
        lanes=tuple(
            LaneFigures(
                destination="mail",
                key=f"k{n}",
                head=DeliveryId(n + 1),
                since=ago(9),
                reason=FailureReason.EXHAUSTED,
                waiting=n,
            )
            for n in range(10)
        ),
        replays=(replay(1, ReplayState.RUNNING),),
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 50), (120, 30), (200, 60), (40, 10)])
def test_a_frame_fits_its_screen(width: int, height: int) -> None:
    view = View(store="sqlite:///" + "long/" * 30 + "shop.db").after(busy(40))

    lines = frame(view, width=width, height=height, with_keys=True).split("\n")

    assert len(lines) <= height
    assert max(line.cell_len for line in lines) <= width
    assert "q quit" in lines[-1].plain


def test_every_part_has_a_place_on_a_small_screen() -> None:
    said = shown(busy(40), height=24)

    for word in ("Destination ", "Replay ", "Dead letters ", "Stopped lane ", "Worker "):
        assert word in said
    assert "/40" in line_of(said, "Destination ")
    assert "/10+" in line_of(said, "Dead letters ")


def test_destinations_get_what_the_others_leave() -> None:
    said = shown(busy(40), height=40)
    few = shown(replace(busy(40), groups=(), lanes=()), height=40)

    assert said.count("paused by ann") > 8
    assert few.count("paused by ann") > said.count("paused by ann")


def test_wide_names_and_control_characters_do_no_harm() -> None:
    odd = destination("注文" * 30 + chr(27) + "[31m", pending=1)

    lines = frame(View().after(Reading(figures=figures(odd))), width=80, height=24).split("\n")

    assert max(line.cell_len for line in lines) <= 80
    assert not any(chr(27) in line.plain for line in lines)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (Sort.TROUBLE, ["paused", "broken", "many", "quick"]),
        (Sort.NAME, ["broken", "many", "paused", "quick"]),
        (Sort.PENDING, ["many", "broken", "paused", "quick"]),
        (Sort.FAILED, ["broken", "many", "paused", "quick"]),
        (Sort.RATE, ["quick", "broken", "many", "paused"]),
    ],
)
def test_destinations_are_sorted_as_asked(sort: Sort, order: list[str]) -> None:
    paused = gate("paused", Gate(pause=Pause(by="ann", why="", at=NOW)), Hold.PAUSED)
    before = [destination(name) for name in ("many", "quick", "broken", "paused")]
    after = [
        destination("many", pending=90, oldest_due=ago(9)),
        destination("quick", delivered=50),
        destination("broken", failed=3),
        destination("paused"),
    ]
    view = View(sort=sort).after(Reading(figures=figures(*before, now=ago(1))))

    view = view.after(Reading(figures=figures(*after), gates=(paused,)))

    assert [one.name for one in view.destinations()] == order


def test_sorting_goes_round() -> None:
    seen = [Sort.TROUBLE]
    for _ in Sort:
        seen.append(seen[-1].next)

    assert seen[-1] is Sort.TROUBLE
    assert set(seen) == set(Sort)


def test_a_password_in_the_address_is_not_shown() -> None:
    view = View(store="postgresql://shop:hidden@db.example/shop")

    assert "hidden" not in frame(view, width=120).plain
    assert "//…@db.example/shop" in frame(view, width=120).plain


def test_drawings_never_leave_their_room() -> None:
    assert chart([99, 0], full=10, lines=2) == ["██  ", "██  "]
    assert chart([1], full=0, lines=1) == ["██"]
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([1], full=8) == "▁"
