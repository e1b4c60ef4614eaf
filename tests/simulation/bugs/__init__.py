"""Planted bugs: each breaks the engine or its store in one way that has bitten real systems.

A simulation that does not find them proves nothing.
"""

from __future__ import annotations

from tests.simulation.bugs import (
    auto_replays,
    counts,
    declarations,
    engine,
    gates,
    gateway,
    leases,
    letters,
    log,
    projections,
    queue,
    ring,
    routes,
    statements,
    tracking,
)
from tests.simulation.bugs.bug import Bug, planted

__all__ = ["BUGS", "Bug", "planted"]

BUGS: tuple[Bug, ...] = (
    *leases.BUGS,
    *queue.BUGS,
    *gates.BUGS,
    *log.BUGS,
    *letters.BUGS,
    *routes.BUGS,
    *declarations.BUGS,
    *auto_replays.BUGS,
    *ring.BUGS,
    *engine.BUGS,
    *statements.BUGS,
    *counts.BUGS,
    *projections.BUGS,
    *tracking.BUGS,
    *gateway.BUGS,
)
