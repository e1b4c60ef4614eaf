"""The targets: ratios within one run, met or missed by what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from benchmarks.results import Results

__all__ = ["TARGETS", "Target", "Verdict", "Word", "judge"]

_POSTGRES, _SQLITE = "redrive_postgres", "redrive_sqlite"
_MILLION = "1000000"


class Word(StrEnum):
    """How a target came out."""

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "not measured"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is aimed at: `value` is at least `least`, or at most `most`."""

    name: str
    wanted: str
    value: Callable[[Results], float | None]
    spell: Callable[[float], str]
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A target beside what was measured."""

    name: str
    wanted: str
    found: str
    word: Word


def judge(results: Results, targets: Sequence[Target] | None = None) -> list[Verdict]:
    """Return how each target came out."""
    verdicts = []
    for target in TARGETS if targets is None else targets:
        value = target.value(results)
        if value is None:
            found, word = "-", Word.UNKNOWN
        else:
            is_met = (target.least is None or value >= target.least) and (
                target.most is None or value <= target.most
            )
            found, word = target.spell(value), Word.MET if is_met else Word.MISSED
        verdicts.append(Verdict(name=target.name, wanted=target.wanted, found=found, word=word))
    return verdicts


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """Where a figure is found in the results."""

    section: str
    workload: str
    contender: str
    figure: str = "per_second"
    point: str = ""

    def of(self, results: Results) -> float | None:
        return results.best(self.section, self.workload, self.contender, self.figure, self.point)


def _share(ours: _Figure, theirs: _Figure) -> Callable[[Results], float | None]:
    def value(results: Results) -> float | None:
        mine, other = ours.of(results), theirs.of(results)
        return mine / other if mine is not None and other else None

    return value


def _times(value: float) -> str:
    return f"{value:.2f} x"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _cell(section: str, workload: str, contender: str, figure: str = "per_second") -> _Figure:
    return _Figure(section=section, workload=workload, contender=contender, figure=figure)


def _against(
    name: str, wanted: str, ours: _Figure, theirs: _Figure, *, least: float, share: bool = False
) -> Target:
    return Target(
        name=name,
        wanted=wanted,
        value=_share(ours, theirs),
        spell=_percent if share else _times,
        least=least,
    )


def _growth(
    name: str,
    workload: str,
    engine: str,
    small: str,
    large: str,
    *,
    least: float,
    figure: str = "per_second",
) -> Target:
    section = "features" if workload in {"features", "projecting"} else "growth"

    def value(results: Results) -> float | None:
        return results.ratio(section, workload, engine, figure, of=large, to=small)

    store = engine.removeprefix("redrive_")
    return Target(
        name=f"{name}, {store}",
        wanted=f"at least {least:.0%}",
        value=value,
        spell=_percent,
        least=least,
    )


def _destinations(engine: str) -> list[Target]:
    return [
        _growth(
            f"{name}, {size:,} destinations, of 1",
            "destinations",
            engine,
            "1",
            str(size),
            least=least,
            figure=figure,
        )
        for figure, name, of_most in (
            ("at_each", "drain, due at each", 0.6),
            ("at_few", "drain, due at one in a hundred", 0.6),
            ("to_all", "drain, one event to all", 0.5),
            ("published", "publish", 0.6),
        )
        for size, least in ((20, 0.9), (200, 0.8), (10_000, of_most))
    ]


def _services(engine: str) -> list[Target]:
    store = engine.removeprefix("redrive_")
    return [
        *(
            _growth(
                f"{name}, 10,000 services, of 1",
                "services",
                engine,
                "1",
                "10000",
                least=0.5,
                figure=figure,
            )
            for figure, name in (("per_second", "drain"), ("published", "publish"))
        ),
        _resource(
            f"one rule of 10,000 changes, {store}",
            "less than 100 ms of processor time",
            _Figure(
                section="growth",
                workload="services",
                contender=engine,
                figure="change_ms",
                point="10000",
            ),
            most=100.0,
            unit="ms",
        ),
        _resource(
            f"an idle worker with 10,000 services, {store}",
            "less than 1% of a core",
            _Figure(
                section="growth",
                workload="services",
                contender=engine,
                figure="cpu_percent",
                point="10000",
            ),
            most=1.0,
            unit="%",
        ),
    ]


def _resource(name: str, wanted: str, figure: _Figure, *, most: float, unit: str) -> Target:
    return Target(
        name=name,
        wanted=wanted,
        value=figure.of,
        spell=lambda value: f"{value:.2f} {unit}",
        most=most,
    )


def _latency(figure: str) -> Target:
    ours = _cell("postgres", "latency", _POSTGRES, figure)
    theirs = _cell("postgres", "latency", "pgqueuer", figure)
    return Target(
        name=f"PostgreSQL latency at 200/s, {figure.removesuffix('_ms')}, of PgQueuer's",
        wanted="at most 120%",
        value=_share(ours, theirs),
        spell=_percent,
        most=1.2,
    )


def _promise(workload: str, point: str, figure: str, engine: str, *, most: float) -> Target:
    """A time of ours, whatever others take."""
    what, _, unit = figure.rpartition("_")
    name = f"commit to handler, {point}" if workload == "outbox" else point
    return Target(
        name=f"{name}, {what}, {engine.removeprefix('redrive_')}",
        wanted=f"less than {most:g} {unit}",
        value=_Figure(
            section="promises", workload=workload, contender=engine, figure=figure, point=point
        ).of,
        spell=lambda value: f"{value:.1f} {unit}",
        most=most,
    )


def _dashboard(engine: str) -> list[Target]:
    of = ("promises", "dashboard", engine)
    store = engine.removeprefix("redrive_")
    many, one = (f"{count} on the overview" for count in (200, 1))

    def slowest(results: Results) -> float | None:
        found = [results.middle(*of, "p95_ms", point) for point in results.points(*of)]
        return max((one for one in found if one is not None), default=None)

    def share(results: Results) -> float | None:
        return results.ratio(*of, "queries_per_second", of=many, to=one)

    return [
        Target(
            name=f"the slowest page, a million dead letters, p95, {store}",
            wanted="less than 200 ms",
            value=slowest,
            spell=lambda value: f"{value:.0f} ms",
            most=200.0,
        ),
        _resource(
            f"{many}, {store}",
            "less than 20% of a core",
            _Figure(
                section="promises",
                workload="dashboard",
                contender=engine,
                figure="cpu_percent",
                point=many,
            ),
            most=20.0,
            unit="%",
        ),
        Target(
            name=f"queries of {many}, of one, {store}",
            wanted="at most 120%",
            value=share,
            spell=_percent,
            most=1.2,
        ),
    ]


def _tracking() -> list[Target]:
    of = ("promises", "tracked", _SQLITE)
    file, store = "into a file, tracked", "into the store, one publish each"

    def more(results: Results, load: str) -> float | None:
        """Return how much longer the slowest take, if that is more than noise."""
        points = (f"a web handler {one}, {load}" for one in ("that tracks", "alone"))
        with_it, without = (results.middle(*of, "p99_ms", one) for one in points)
        if with_it is None or without is None:
            return None
        return 0.0 if with_it <= without * 1.15 else with_it - without

    return [
        _resource(
            "an event that is tracked, warm",
            "at most 5 µs",
            _cell("tracking", "track", "redrive_tracking", "us"),
            most=5.0,
            unit="µs",
        ),
        Target(
            name="events tracked into a file, of one publish each, sqlite",
            wanted="at least 5 x",
            value=lambda results: results.ratio(*of, "per_second", of=file, to=store),
            spell=_times,
            least=5.0,
        ),
        *(
            Target(
                name="p99 of a web handler that tracks to a dead, a hung and a good sink, "
                f"{load}, more",
                wanted="at most 3 ms, or 15%",
                value=partial(more, load=load),
                spell=lambda value: f"{value:.1f} ms",
                most=3.0,
            )
            for load in (
                "at half of what it can do",
                "at three quarters of what it can do",
                "as fast as it goes",
            )
        ),
    ]


def _over_http(way: str) -> Target:
    def value(results: Results) -> float | None:
        return results.ratio(
            "promises", "serving", _SQLITE, "per_second", of=way, to=f"{way}, bare starlette"
        )

    return Target(
        name=f"HTTP publish, {way}, of a bare starlette endpoint, sqlite",
        wanted="at least 60%",
        value=value,
        spell=_percent,
        least=0.6,
    )


def _by_way(way: str) -> Target:
    def value(results: Results) -> float | None:
        return results.ratio(
            "promises", "sending", _SQLITE, "per_second", of=way, to=f"{way}, bare"
        )

    return Target(
        name=f"sending by {way}, of a bare client of its library",
        wanted="at least 70%",
        value=value,
        spell=_percent,
        least=0.7,
    )


def _of_eventsourcing(name: str, workload: str, arena: str) -> Target:
    """What we project, of a library whose projections get an event at a time."""
    return _against(
        f"{name}, of eventsourcing, {arena}",
        "at least 10 x",
        _cell(arena, workload, f"redrive_{arena}"),
        _cell(arena, "project", f"eventsourcing_{arena}"),
        least=10.0,
    )


_DRAINED = _cell("postgres", "drain", _POSTGRES)
_SINGLE = _cell("postgres", "single", "pgqueuer")

TARGETS: Sequence[Target] = (
    _against(
        "PostgreSQL drain, of PgQueuer",
        "at least 1.5 x",
        _DRAINED,
        _cell("postgres", "drain", "pgqueuer"),
        least=1.5,
    ),
    _against(
        "PostgreSQL drain, of raw claim-and-mark",
        "at least 50%",
        _DRAINED,
        _cell("postgres", "drain", "raw_postgres"),
        least=0.5,
        share=True,
    ),
    _against(
        "PostgreSQL bulk publish, of PgQueuer",
        "at least 2 x",
        _cell("postgres", "bulk", _POSTGRES),
        _cell("postgres", "bulk", "pgqueuer"),
        least=2.0,
    ),
    _against(
        "PostgreSQL publish by 100 tasks, of PgQueuer one by one",
        "at least 5 x",
        _cell("postgres", "concurrent", _POSTGRES),
        _SINGLE,
        least=5.0,
    ),
    _latency("p50_ms"),
    _latency("p99_ms"),
    _against(
        "SQLite drain, of Huey",
        "at least 8 x, aim 15 x",
        _cell("sqlite", "drain", _SQLITE),
        _cell("sqlite", "drain", "huey_sqlite"),
        least=8.0,
    ),
    _against(
        "SQLite publish by 100 tasks, of Huey one by one",
        "at least 5 x",
        _cell("sqlite", "concurrent", _SQLITE),
        _cell("sqlite", "single", "huey_sqlite"),
        least=5.0,
    ),
    _against(
        "HTTP deliveries, of a bare aiohttp client",
        "at least 70%",
        _cell("http", "send", "redrive_http"),
        _cell("http", "send", "raw_aiohttp"),
        least=0.7,
        share=True,
    ),
    Target(
        name="a successful call through our policies, of tenacity and purgatory",
        wanted="at most 20%",
        value=_share(
            _cell("calls", "call", "redrive_calls", "us"),
            _cell("calls", "call", "tenacity_purgatory", "us"),
        ),
        spell=_percent,
        most=0.2,
    ),
    *(
        target
        for engine in (_POSTGRES, _SQLITE)
        for target in (
            _growth(
                "drain at a backlog of a million, of ten thousand",
                "backlog",
                engine,
                "10000",
                _MILLION,
                least=0.9,
            ),
            _growth(
                "drain with a million dead letters, of none",
                "dead_letters",
                engine,
                "0",
                _MILLION,
                least=0.9,
            ),
            _growth(
                "drain with a million finished rows, of none",
                "finished",
                engine,
                "0",
                _MILLION,
                least=0.9,
            ),
            _growth(
                "drain beside a million scheduled, of none",
                "scheduled",
                engine,
                "0",
                _MILLION,
                least=0.95,
            ),
            _growth(
                "drain beside 1,000 that are held back, of none",
                "held",
                engine,
                "0",
                "1000",
                least=0.9,
            ),
            _growth("drain with 10,000 tenants, of 1", "tenants", engine, "1", "10000", least=0.7),
            *_destinations(engine),
            *_services(engine),
            _growth(
                "drain with all features, of none", "features", engine, "bare", "all", least=0.7
            ),
            _resource(
                f"a worker with 1,000 in flight, {engine.removeprefix('redrive_')}",
                "less than 200 MB",
                _Figure(
                    section="resources",
                    workload="memory",
                    contender=engine,
                    figure="mb",
                    point="1,000 in flight",
                ),
                most=200.0,
                unit="MB",
            ),
            _resource(
                f"an idle worker, {engine.removeprefix('redrive_')}",
                "less than 1% of a core",
                _Figure(
                    section="resources",
                    workload="idle",
                    contender=engine,
                    figure="cpu_percent",
                    point="idle",
                ),
                most=1.0,
                unit="%",
            ),
        )
    ),
    _resource(
        "an idle worker, postgres",
        "at most 2 queries per second",
        _Figure(
            section="resources",
            workload="idle",
            contender=_POSTGRES,
            figure="queries_per_second",
            point="idle",
        ),
        most=2.0,
        unit="per second",
    ),
    *(one for engine in (_POSTGRES, _SQLITE) for one in _dashboard(engine)),
    *_tracking(),
    *(
        _by_way(way)
        for way in ("redis_stream", "nats", "amqp", "smtp", "loki", "otlp", "sentry", "ses")
    ),
    *(_over_http(way) for way in ("one by one", "by 100 connections", "1,000 a call")),
    _growth(
        "project, an upsert for each, of the driver alone",
        "projecting",
        _POSTGRES,
        "the driver alone, an upsert for each",
        "project, an upsert for each",
        least=0.6,
    ),
    *(
        _growth(
            f"rebuild, {way}, of live",
            "projecting",
            engine,
            f"project, {way}",
            f"rebuild, {way}",
            least=1.0,
        )
        for engine in (_POSTGRES, _SQLITE)
        for way in ("an upsert for each", "in lists")
    ),
    _of_eventsourcing("project, an upsert for each", "project", "sqlite"),
    _of_eventsourcing("project, in lists", "project_lists", "sqlite"),
    _of_eventsourcing("project, in lists", "project_lists", "postgres"),
    *(
        _promise("outbox", way, figure, _POSTGRES, most=most)
        for way in (
            "SQLAlchemy, session",
            "SQLAlchemy, connection",
            "SQLAlchemy, async session",
            "Django, atomic",
        )
        for figure, most in (("p50_ms", 50.0), ("p95_ms", 250.0))
    ),
    *(
        _promise("bookkeeping", point, figure, engine, most=most)
        for engine in (_POSTGRES, _SQLITE)
        for point, figure, most in (
            ("a retry", "p99_ms", 10.0),
            ("a dead letter", "p99_ms", 5.0),
            ("publish to handler, 1,000 tenants", "p50_ms", 50.0),
            ("publish to handler, 1,000 tenants", "p95_ms", 250.0),
            ("a healed destination", "recovery_s", 60.0),
        )
    ),
)
