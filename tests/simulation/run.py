"""Run one seed, and tell what came of it."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

import msgspec

from redrive.pipeline import claim
from redrive.store import ClaimRequest
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import counting
from redrive.worker import ring
from tests.proof.checkers import CHECKS, Check, Violation
from tests.simulation.bugs import Bug, planted
from tests.simulation.disk import HostGround
from tests.simulation.gateway import GATEWAY_CHECKS, GatewayWorld, draw_gateway
from tests.simulation.ground import Ground, NetworkGround
from tests.simulation.history import History
from tests.simulation.loop import Deadlock, Livelock, SimulationLoop
from tests.simulation.plan import Plan, StoreKind, draw
from tests.simulation.postgres import ServerGround
from tests.simulation.projecting import PROJECTING_CHECKS, ProjectingWorld
from tests.simulation.tracking import TRACKING_CHECKS, TrackingWorld, draw_tracking
from tests.simulation.world import World, promises_of

__all__ = ["Result", "run"]

_MUCH = 8
"""So little is counted at once that there is always something that was, and something not."""
_KINDS: dict[str, tuple[Sequence[type[Check]], type[World]]] = {
    "": (CHECKS, World),
    "projections": (PROJECTING_CHECKS, ProjectingWorld),
    "tracking": (TRACKING_CHECKS, TrackingWorld),
    "gateway": (GATEWAY_CHECKS, GatewayWorld),
}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a seed; two runs of it have the same trace."""

    seed: int
    plan: Plan
    trace: str
    violations: tuple[Violation, ...]
    last: tuple[str, ...]
    records: int
    steps: int
    deliveries: int
    seconds: float
    """How much virtual time has passed."""
    ways: dict[str, int]
    """How often each call went which way, on a store that has several."""

    @property
    def is_well(self) -> bool:
        return not self.violations

    @property
    def _where(self) -> str:
        if self.plan.kind:
            special = f" {self.plan.kind.upper()}=1"
        else:
            special = " CROWDS=1" if self.plan.most_bytes is not None else ""
        return special + (" STORE=postgres" if self.plan.store == "postgres" else "")

    def report(self) -> str:
        """Return everything that is needed to understand and repeat a failure."""
        wrong = "\n".join(f"  {one.check}: {one.what}" for one in self.violations)
        plan = msgspec.json.format(msgspec.json.encode(self.plan), indent=2).decode()
        lines = "\n".join(self.last)
        return (
            f"seed {self.seed} breaks what must hold\n{wrong}\n\nthe plan\n{plan}\n\n"
            f"the last {len(self.last)} lines\n{lines}\n\n"
            f"seed {self.seed} breaks what must hold\n{wrong}\n"
            f"run it again with: make simulate SEED={self.seed}{self._where}"
        )


def run(
    seed: int,
    *,
    bug: Bug | None = None,
    store: StoreKind | None = None,
    projects: bool = False,
    tracks: bool = False,
    is_crowded: bool = False,
    has_services: bool = False,
) -> Result:
    """Run a seed from beginning to end, or up to the first thing that is wrong.

    Without a store it is drawn; a planted bug is one of the store that it names. A world that
    `projects` is on SQLite, one that `tracks` on a server in memory.
    """
    with planted(bug) as make:
        if bug is not None:
            store, projects, tracks = bug.on, bug.is_projecting, bug.is_tracking
            is_crowded, has_services = bug.is_crowded, bug.has_services
        if tracks:
            plan = draw_tracking(seed)
        elif has_services:
            plan = draw_gateway(seed, store=store)
        else:
            plan = draw(seed, store=store, projects=projects, is_crowded=is_crowded)
        return _run(plan, make, spoils=None if bug is None else bug.words)


def _run(plan: Plan, make: type[MemoryStore], *, spoils: tuple[str, str] | None) -> Result:
    seed = plan.seed
    loop = SimulationLoop(seed)
    checks, make_world = _KINDS[plan.kind]
    history = History(promises_of(plan), on_wrong=loop.stop, checks=checks)
    ground: Ground
    if plan.store == "sqlite":
        ground = HostGround(plan, loop, history)
    elif plan.store == "postgres":
        ground = ServerGround(plan, loop, history, spoils=spoils)
    else:
        ground = NetworkGround(plan, loop, history, make)
    world = make_world(plan, loop, history, ground)
    crowd = ExitStack()
    crowd.enter_context(patch.object(ring, "FEW", plan.few))
    crowd.enter_context(patch.object(ring, "PAGE", plan.page))
    crowd.enter_context(patch.object(counting, "MUCH", _MUCH))
    if plan.most_bytes is not None:
        request = partial(ClaimRequest, most_bytes=plan.most_bytes)
        crowd.enter_context(patch.object(claim, "ClaimRequest", request))
    violations: list[Violation] = []
    is_collecting = gc.isenabled()
    gc.disable()  # a task that is collected runs its `finally`, whenever that may be
    try:
        loop.run_until_complete(world.run())
    except (Deadlock, Livelock) as error:
        violations.append(_unexpected(type(error).__name__, str(error), history, loop))
    except Exception as error:  # noqa: BLE001 - whatever breaks a run is what it has found
        if not history.violations:
            told = "".join(traceback.format_exception(error))
            violations.append(_unexpected("broken run", told, history, loop))
    finally:
        violations = [*history.violations, *violations]
        if loop.unhandled and not violations:
            violations.append(_unexpected("unhandled", loop.unhandled[0], history, loop))
        result = Result(
            seed=seed,
            plan=plan,
            trace=f"{history.trace}-{loop.steps}",
            violations=tuple(violations),
            last=tuple(history.last()),
            records=history.count,
            steps=loop.steps,
            deliveries=history.deliveries,
            seconds=loop.time(),
            ways=dict(ground.ways),
        )
        loop.discard()
        ground.end()
        crowd.close()
        if is_collecting:
            gc.enable()
    return result


def _unexpected(check: str, what: str, history: History, loop: SimulationLoop) -> Violation:
    return Violation(check=check, what=what, index=history.count, at=loop.time())
