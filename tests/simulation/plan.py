"""What one seed draws: the system, its destinations, the work, and what will go wrong.

Each kind of trouble is in the plan of some seeds and not of others: a fault that is always there
hides what happens without it.
"""

from __future__ import annotations

from random import Random
from typing import Literal

import msgspec

from redrive.model.fairness import Fairness
from redrive.model.limits import Breaker, Rate, SharedRate
from redrive.model.projection import destination_of
from redrive.model.replay import AutoReplay
from tests.simulation.crowds import CROWDED, crowded, thronged

__all__ = [
    "DestinationPlan",
    "Fault",
    "GatewayPlan",
    "Plan",
    "ProjectionPlan",
    "StoreKind",
    "TrackingPlan",
    "draw",
]

StoreKind = Literal["memory", "sqlite", "postgres"]
_SQLITE_EVERY = 8
"""One seed in so many runs on the real SQLite store, which takes longer."""

_WORKERS_ON_A_SERVER, _MOST_ON_A_SERVER, _LONGEST_ON_A_SERVER = 2, 20, 6.0
"""Workers, events and seconds of trouble, where every statement is carried out for real."""
_WITH_ACCOUNTS = 0.12
_SHARING = 0.8
"""The share of worlds with an account, and of the destinations that belong to it."""
_PLAIN = 0.6
"""The share of worlds on PostgreSQL in which single statements do most of the work."""


class DestinationPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A destination, and how it behaves; the shares are of its answers."""

    name: str
    patterns: tuple[str, ...]
    order: str = "none"
    max_attempts: int = 5
    base: float = 0.5
    cap: float = 5.0
    timeout: float = 5.0
    concurrency: int | None = None
    batch: int | None = None
    is_sync: bool = False
    breaker: Breaker | None = None
    rate: Rate | None = None
    retry_rate: Rate | None = None
    replay_rate: Rate | None = None
    retry_budget: float | None = None
    shared_rate: SharedRate | None = None
    fairness: Fairness = Fairness()
    snooze_limit: int = 5
    is_checked: bool = False
    transient: float = 0.0
    snoozing: float = 0.0
    throttling: float = 0.0
    retry_after: float = 1.0
    slow: float = 0.0
    hanging: float = 0.0
    blocking: float = 0.0
    latency: float = 0.05
    down: tuple[tuple[float, float], ...] = ()
    joins_at: float = 0.0
    auto_replay: AutoReplay | None = None


class ProjectionPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A projection, and how its function behaves; the shares are of its calls."""

    name: str
    patterns: tuple[str, ...]
    on_failure: Literal["park", "halt", "skip"] = "park"
    max_attempts: int = 3
    base: float = 0.5
    timeout: float = 5.0
    transient: float = 0.0
    slow: float = 0.0
    deadly: float = 0.0
    latency: float = 0.0
    takes_batch: bool = False
    versions: int = 1
    partitions: int = 1

    def partitions_of(self, version: int) -> int:
        """Return how many a version has; if not one, another number than the version before."""
        return self.partitions + (version - 1 if self.partitions > 1 else 0)

    @property
    def titles(self) -> dict[int, str]:
        """What each version is called among destinations."""
        return {one: destination_of(self.name, one) for one in range(1, self.versions + 1)}


class TrackingPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How processes track; `disk_full` is from when to when the journal takes nothing."""

    trackers: int
    events: int
    capacity: int
    on_full: Literal["spill", "drop_oldest", "raise"]
    flush_limit: float
    disk_full: tuple[float, float] = (0.0, 0.0)


class GatewayPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which destinations are stored services, and how people change them and their rules.

    What waits for a deleted service is dropped in the end, or the service comes back. Where they
    act `at_once`, people do so at whole seconds.
    """

    services: tuple[str, ...]
    rules: int
    changes: int
    drops: bool
    at_once: bool


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that goes wrong at a time: what, with which machine, and how much."""

    at: float
    what: str
    machine: int = 0
    amount: float = 0.0


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that is drawn before a run begins.

    `far` is the share of events that are due in minutes or hours, `ahead` how many seconds past the
    minute the clocks begin. `lock_timeout` is the server's own, where it has one. Events of a
    plain world have no priority. `large` is the share of payloads of which no two have room in the
    `most_bytes` of a claim. Where there is a `next_release`, it is rolled out at the first of the
    `rollouts`, back at the second, and so on. Where there are `projections`, there are no
    destinations but them.
    """

    seed: int
    store: StoreKind
    workers: int
    publishers: int
    operators: int
    is_rerouted: bool = False
    events: int
    duration: float
    keys: int
    tenants: int
    hog: float
    generations: tuple[str, ...]
    lease: float
    grace: float
    poll: float
    concurrency: int
    few: int = 0
    page: int = 1
    most_bytes: int | None = None
    removes: bool = False
    destinations: tuple[DestinationPlan, ...]
    terminal: float = 0.0
    poison: float = 0.0
    large: float = 0.0
    delayed: float = 0.0
    far: float = 0.0
    ahead: float = 0.0
    deadlines: float = 0.0
    keyed_twice: float = 0.0
    batches: float = 0.0
    within: float = 0.0
    latency: float = 0.002
    lost_requests: float = 0.0
    lost_replies: float = 0.0
    late_replies: float = 0.0
    duplicates: float = 0.0
    disk_errors: float = 0.0
    late_commits: float = 0.0
    is_plain: bool = False
    lost_notices: float = 0.0
    lock_timeout: float = 0.0
    pool: int = 0
    drift: float = 0.0
    faults: tuple[Fault, ...] = ()
    next_release: tuple[DestinationPlan, ...] = ()
    rollouts: tuple[float, ...] = ()
    projections: tuple[ProjectionPlan, ...] = ()
    tracking: TrackingPlan | None = None
    gateway: GatewayPlan | None = None

    @property
    def kind(self) -> str:
        """What is special about the world, if anything."""
        if self.gateway:
            return "gateway"
        return "projections" if self.projections else "tracking" if self.tracking else ""

    @property
    def names(self) -> list[str]:
        """The destinations, or the projections."""
        return [
            *(one.name for one in self.destinations),
            *(title for one in self.projections for title in one.titles.values()),
        ]

    @property
    def may_register_again(self) -> bool:
        """Whether somebody who starts may bring a destination that is not, or no longer, there."""
        is_joined = any(one.joins_at for one in self.destinations)
        return self.is_rerouted or self.removes or is_joined

    def is_service(self, name: str) -> bool:
        """Tell whether a destination is a stored service, which no code declares."""
        return self.gateway is not None and name in self.gateway.services

    def destinations_of(self, release: int) -> tuple[DestinationPlan, ...]:
        """Return what a release declares: the first, or the next one where there are two."""
        declared = self.next_release if release else self.destinations
        return tuple(one for one in declared if not self.is_service(one.name))


def draw(
    seed: int, *, store: StoreKind | None = None, projects: bool = False, is_crowded: bool = False
) -> Plan:
    """Return the plan of a seed; of a world with destinations, or dozens, or one that projects."""
    if projects:
        return _Draw(seed, "sqlite").projecting()
    return _Draw(seed, store, is_crowded=is_crowded).plan()


class _Draw:
    def __init__(self, seed: int, store: StoreKind | None, *, is_crowded: bool = False) -> None:
        self._seed = seed
        self._is_crowded = is_crowded
        self._rng = Random(f"plan of {seed}")  # noqa: S311 - a simulation
        # Apart, so that seeds which found something keep most of their meaning.
        self._more = Random(f"more of {seed}")  # noqa: S311 - as above
        self._routes = Random(f"routes of {seed}")  # noqa: S311 - as above
        self._auto_replays = Random(f"schedules of {seed}")  # noqa: S311 - as above
        self._releases = Random(f"releases of {seed}")  # noqa: S311 - as above
        self._late = Random(f"late commits of {seed}")  # noqa: S311 - as above
        self._rings = Random(f"rings of {seed}")  # noqa: S311 - as above
        self._crowds = Random(f"crowds of {seed}")  # noqa: S311 - as above
        self._accounts = Random(f"accounts of {seed}")  # noqa: S311 - as above
        self._store: StoreKind = store or ("sqlite" if seed % _SQLITE_EVERY == 0 else "memory")

    def plan(self) -> Plan:
        """Draw the world as ever, and then what was thought of later."""
        plan = self._first_draft()
        is_rerouted = self._routes.random() < 0.25
        destinations, keys = plan.destinations, plan.keys
        if is_rerouted:
            destinations, keys = _parted(destinations), self._routes.choice([1, keys])
        auto_replays = self._auto_replays
        far = round(auto_replays.uniform(0.1, 0.5), 3) if auto_replays.random() < 0.15 else 0.0
        has_auto_replays = auto_replays.random() < 0.15
        destinations = self._joining(destinations, plan.duration)
        plan = msgspec.structs.replace(
            plan,
            is_rerouted=is_rerouted,
            keys=keys,
            far=far,
            # A whole minute, when auto-replays are due, comes in the midst of the troubles.
            ahead=60.0 - auto_replays.uniform(0.2, 0.9) * plan.duration
            if has_auto_replays
            else 0.0,
            destinations=self._with_auto_replays(destinations)
            if has_auto_replays
            else destinations,
        )
        is_calm = not (is_rerouted or has_auto_replays or any(one.joins_at for one in destinations))
        is_released = self._releases.random() < 0.3
        plan = self._released(plan) if is_calm and is_released else plan
        # Whether workers ask all destinations in each claim, or look for those with work.
        few, page = self._rings.choice([(8, 256), (0, 256), (1, 256), (0, 1)])
        plan = msgspec.structs.replace(plan, few=few, page=page)
        if is_calm and not plan.next_release and self._crowds.random() < CROWDED:
            plan = crowded(plan, self._crowds)
        if self._is_crowded:
            plan = thronged(plan, Random(f"throngs of {self._seed}"))  # noqa: S311 - a simulation
        if self._accounts.random() < _WITH_ACCOUNTS:
            plan = self._with_account(plan)
        return self._on_a_server(plan) if plan.store == "postgres" else plan

    def projecting(self) -> Plan:
        """Draw a world whose workers project."""
        plan = self._first_draft()
        chance = Random(f"projections of {self._seed}")  # noqa: S311 - a simulation
        versions = Random(f"versions of {self._seed}")  # noqa: S311 - as above
        partitions = Random(f"partitions of {self._seed}")  # noqa: S311 - as above
        return msgspec.structs.replace(
            plan,
            workers=chance.choice([2, 2, 3]),
            events=chance.choice([20, 40, 60]),
            destinations=(),
            projections=tuple(
                ProjectionPlan(
                    name=f"p{number}",
                    patterns=chance.choice([("*",), ("a.*",), ("b.*", "c.x")]),
                    on_failure=chance.choice(["park", "park", "park", "halt", "skip"]),
                    max_attempts=chance.choice([1, 2, 3]),
                    base=chance.choice([0.0, 0.5]),
                    timeout=chance.choice([0.3, 2.0]),
                    transient=chance.choice([0.0, 0.1, 0.4]),
                    slow=chance.choice([0.0, 0.0, 0.1]),
                    deadly=chance.choice([0.0, 0.0, 0.02]),
                    latency=chance.choice([0.0, 0.001, 0.05]),
                    takes_batch=chance.random() < 0.3,
                    versions=versions.choice([1, 2]),
                    partitions=partitions.choice([1, 1, 2, 3]),
                )
                for number in range(chance.choice([1, 2]))
            ),
            faults=tuple(
                msgspec.structs.replace(one, machine=one.machine % 2) for one in plan.faults
            ),
        )

    def _with_account(self, plan: Plan) -> Plan:
        """Let most destinations share one rate."""
        accounts = self._accounts
        rate = Rate(per_second=accounts.choice([2.0, 8.0, 30.0]), burst=accounts.choice([1.0, 4.0]))
        names = [one.name for one in plan.destinations if accounts.random() < _SHARING]

        def sharing(destinations: tuple[DestinationPlan, ...]) -> tuple[DestinationPlan, ...]:
            return tuple(
                msgspec.structs.replace(one, shared_rate=SharedRate("account", rate))
                if one.name in names
                else one
                for one in destinations
            )

        return msgspec.structs.replace(
            plan,
            destinations=sharing(plan.destinations),
            next_release=sharing(plan.next_release),
        )

    def _on_a_server(self, plan: Plan) -> Plan:
        """Draw what only a real server has; its transactions overlap by themselves."""
        chance = Random(f"server of {self._seed}")  # noqa: S311 - a simulation
        duration = min(plan.duration, _LONGEST_ON_A_SERVER)
        workers = min(plan.workers, _WORKERS_ON_A_SERVER)
        plan = msgspec.structs.replace(
            plan,
            workers=workers,
            events=min(plan.events, _MOST_ON_A_SERVER),
            poll=max(plan.poll, 1.0),
            duration=duration,
            faults=tuple(
                msgspec.structs.replace(one, machine=one.machine % workers)
                for one in plan.faults
                if one.at < duration
            ),
            rollouts=tuple(one for one in plan.rollouts if one < duration),
            duplicates=0.0,
            late_commits=0.0,
            lost_notices=chance.choice([0.0, 0.0, 0.2, 1.0]),
            lock_timeout=chance.choice([0.0, 0.0, 0.0, 0.05]),
            pool=chance.choice([2, 3, 10]),
        )
        return _plain(plan) if chance.random() < _PLAIN else plan

    def _released(self, plan: Plan) -> Plan:
        """Let there be two releases that differ, rolled out and back once or more."""
        releases = self._releases
        rates = [Rate(per_second=one, burst=burst) for one in (2.0, 8.0) for burst in (1.0, 3.0)]
        first = [
            msgspec.structs.replace(one, rate=one.rate and releases.choice(rates))
            for one in plan.destinations
        ]
        last = [
            msgspec.structs.replace(
                one,
                patterns=releases.choice([one.patterns, ("a.*",), ("a.*", "b.x"), ("*",)]),
                order=releases.choice(["none", "park", "block", "skip"]),
                rate=one.rate and releases.choice(rates),
            )
            for one in first
        ]
        times = [
            releases.uniform(0.0, 0.9) * plan.duration for _ in range(releases.choice([1, 2, 4]))
        ]
        return msgspec.structs.replace(
            plan,
            destinations=tuple(first),
            next_release=tuple(last),
            rollouts=tuple(round(one, 3) for one in sorted(times)),
        )

    def _with_auto_replays(
        self, destinations: tuple[DestinationPlan, ...]
    ) -> tuple[DestinationPlan, ...]:
        auto_replays = self._auto_replays
        return tuple(
            msgspec.structs.replace(
                one,
                auto_replay=AutoReplay(
                    cron="* * * * *",
                    batch=auto_replays.choice([2, 100]),
                    cycles=auto_replays.choice([1, 3]),
                ),
            )
            for one in destinations
        )

    def _joining(
        self, destinations: tuple[DestinationPlan, ...], duration: float
    ) -> tuple[DestinationPlan, ...]:
        """Let the last destination come later than the others, in some worlds."""
        routes, (*first, last) = self._routes, destinations
        joins_at = round(routes.uniform(0.1, 0.8) * duration, 3)
        if not first or routes.random() > 0.2:
            return destinations
        return (*first, msgspec.structs.replace(last, joins_at=joins_at))

    def _first_draft(self) -> Plan:
        rng = self._rng
        duration = rng.choice([4.0, 8.0, 8.0, 12.0, 25.0])
        workers = rng.choice([1, 2, 2, 3])
        lease = rng.choice([1.0, 1.5, 3.0, 6.0])
        is_networked = self._store != "sqlite"
        return Plan(
            seed=self._seed,
            store=self._store,
            workers=workers,
            publishers=rng.choice([1, 1, 2]),
            operators=rng.choice([0, 1, 1, 2]),
            events=rng.choice([8, 15, 25, 40]),
            duration=duration,
            keys=rng.choice([1, 3, 6]),
            tenants=rng.choice([0, 2, 4]),
            hog=rng.choice([0.0, 0.0, 0.8]),
            generations=rng.choice([("default",), ("default",), ("default", "blue")]),
            lease=lease,
            grace=rng.choice([0.5, 2.0, 5.0]),
            poll=rng.choice([0.2, 1.0, 1.0, 3.0]),
            concurrency=rng.choice([1, 2, 5, 20, 100]),
            destinations=tuple(
                self._destination(number, duration) for number in range(rng.choice([1, 2, 2, 3]))
            ),
            terminal=self._share(0.3, 0.15),
            poison=self._share(0.3, 0.2),
            delayed=self._share(0.4, 0.3),
            deadlines=self._share(0.3, 0.3),
            keyed_twice=self._share(0.4, 0.4),
            batches=self._share(0.4, 0.3),
            within=0.0 if is_networked else self._share(0.5, 0.5),
            latency=rng.choice([0.0005, 0.002, 0.02]),
            lost_requests=self._share(0.4, 0.05) if is_networked else 0.0,
            lost_replies=self._share(0.4, 0.05) if is_networked else 0.0,
            late_replies=self._share(0.3, 0.03) if is_networked else 0.0,
            duplicates=self._share(0.3, 0.05) if is_networked else 0.0,
            disk_errors=0.0 if is_networked else self._share(0.5, 0.02),
            late_commits=self._late.choice([0.0, 0.0, 0.0, 0.2, 0.6]) if is_networked else 0.0,
            drift=rng.choice([0.0, 0.0, 0.02, -0.02]),
            faults=self._faults(duration, workers, lease),
        )

    def _share(self, chance: float, most: float) -> float:
        """Draw a share up to `most`, or none at all."""
        drawn = self._rng.uniform(0.1, 1.0) * most
        return round(drawn, 3) if self._rng.random() < chance else 0.0

    def _destination(self, number: int, duration: float) -> DestinationPlan:
        rng = self._rng
        timeout = rng.choice([0.5, 2.0, 5.0])
        return DestinationPlan(
            name=f"d{number}",
            patterns=rng.choice([("*",), ("*",), ("a.*",), ("b.*", "c.x")]),
            order=rng.choice(["none", "none", "park", "block", "skip"]),
            max_attempts=rng.choice([1, 2, 3, 5]),
            base=rng.choice([0.0, 0.1, 0.5, 1.0]),
            cap=rng.choice([1.0, 3.0, 5.0]),
            timeout=timeout,
            concurrency=rng.choice([None, None, 1, 3]),
            batch=rng.choice([None, None, None, 1, 4]),
            is_sync=rng.random() < 0.1,
            breaker=self._breaker(),
            rate=self._rate(0.25),
            retry_rate=self._rate(0.3),
            replay_rate=self._rate(0.3),
            retry_budget=rng.choice([None, None, None, 0.1]),
            fairness=Fairness(
                turn=rng.choice([1, 3, 3]),
                weights=rng.choice([(), (), (("t1", 2),)]),
                rate=self._tenant_rate(),
            ),
            is_checked=self._more.random() < 0.3,
            snooze_limit=rng.choice([2, 5, 50]),
            transient=self._share(0.7, 0.6),
            snoozing=self._share(0.2, 0.3),
            throttling=self._share(0.2, 0.2),
            retry_after=rng.choice([0.0, 1.0, 5.0, 5.0, 1e9]),
            slow=self._share(0.35, 0.5),
            hanging=self._share(0.1, 0.05),
            blocking=self._share(0.1, 0.05),
            latency=rng.choice([0.001, 0.05, 0.3]),
            down=self._outages(duration),
        )

    def _breaker(self) -> Breaker | None:
        rng = self._rng
        breaker = Breaker(
            failures=rng.choice([1, 2, 3, 5]),
            open_for=rng.choice(["1s", "3s", "8s"]),
            longest_open=rng.choice(["8s", "45s"]),
            successes=rng.choice([1, 2, 3]),
            probes=rng.choice([1, 1, 2]),
            on_open=rng.choice(["hold", "hold", "dead_letter"]),
            ramp=rng.choice(["0s", "2s", "10s"]),
        )
        return breaker if rng.random() < 0.5 else None

    def _rate(self, chance: float) -> Rate | None:
        rng = self._rng
        rate = Rate(per_second=rng.choice([1.0, 4.0, 20.0]), burst=rng.choice([1.0, 1.0, 3.0]))
        return rate if rng.random() < chance else None

    def _tenant_rate(self) -> Rate | None:
        more = self._more
        rate = Rate(per_second=more.choice([1.0, 5.0]), burst=more.choice([1.0, 2.0]))
        return rate if more.random() < 0.15 else None

    def _outages(self, duration: float) -> tuple[tuple[float, float], ...]:
        rng = self._rng
        number = rng.choice([0, 0, 1, 3])
        begun = [rng.uniform(0, duration) for _ in range(number)]
        return tuple(
            (round(one, 3), round(one + rng.uniform(0.5, 10.0), 3)) for one in sorted(begun)
        )

    def _faults(self, duration: float, workers: int, lease: float) -> tuple[Fault, ...]:
        rng = self._rng
        kinds: tuple[tuple[str, float, float, float], ...] = (
            ("store down", 0.3, 0.1, rng.choice([2.0, 10.0, 120.0])),
            ("crash", 0.5, 0.0, 5.0),
            ("freeze", 0.4, 1.0, rng.choice([lease * 3, 20.0, 300.0])),
            ("stop", 0.4, 0.0, 3.0),
            ("clock step", 0.3, -3600.0, 3600.0),
            ("store clock step", 0.1, -60.0, 3600.0),
            ("publisher crash", 0.2, 0.0, 3.0),
        )
        faults: list[Fault] = []
        for what, chance, low, high in kinds:
            number = rng.choice([1, 2, 4]) if rng.random() < chance else 0
            faults += [
                Fault(
                    round(rng.uniform(0.0, duration), 3),
                    what,
                    rng.randrange(workers),
                    round(rng.uniform(low, max(low, high)), 3),
                )
                for _ in range(number)
            ]
        return tuple(sorted(faults, key=lambda one: one.at))


def _plain(plan: Plan) -> Plan:
    """Let most attempts be such that there is nothing to decide, whatever happens around them."""

    def simple(destinations: tuple[DestinationPlan, ...]) -> tuple[DestinationPlan, ...]:
        return tuple(
            msgspec.structs.replace(
                one,
                order="none",
                concurrency=None,
                rate=None,
                retry_rate=None,
                replay_rate=None,
                retry_budget=None,
                fairness=Fairness(),
                transient=one.transient / 4,
                snoozing=0.0,
                throttling=0.0,
            )
            for one in destinations
        )

    return msgspec.structs.replace(
        plan,
        is_plain=True,
        keyed_twice=max(plan.keyed_twice, 0.3),
        keys=1,
        tenants=0,
        generations=("default",),
        delayed=plan.delayed / 4,
        destinations=simple(plan.destinations),
        next_release=simple(plan.next_release),
    )


def _parted(destinations: tuple[DestinationPlan, ...]) -> tuple[DestinationPlan, ...]:
    """Let destinations want different events, so that what one has can be moved to another.

    One of them is slow and keeps order: it is often at work when something is moved to it.
    """
    wants = (("a.*",), ("b.*", "c.x"), ("a.x", "b.*"))
    parted = [
        msgspec.structs.replace(one, patterns=patterns)
        for one, patterns in zip(destinations, wants, strict=False)
    ]
    order = "park" if parted[-1].order == "none" else parted[-1].order
    parted[-1] = msgspec.structs.replace(parted[-1], order=order, slow=0.5, is_sync=False)
    return tuple(parted)
