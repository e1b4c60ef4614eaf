"""Planted bugs of the single statements by which PostgreSQL does most of its work."""

from __future__ import annotations

from redrive.stores.postgres.scan_bounds import ScanBounds
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]


def _bug(name: str, words: str, becomes: str) -> Bug:
    return Bug(name, on="postgres", words=(words, becomes))


_LEASE = "SET status = 1, token = token + 1, attempts = attempts + 1, worker = $3"
_GATE = "AND g.document = q.gate"

BUGS = (
    _bug(
        "one statement gives out the same token",
        _LEASE,
        "SET status = 1, token = token + 0, attempts = attempts + 1, worker = $3",
    ),
    _bug(
        "one statement does not count the attempt",
        _LEASE,
        "SET status = 1, token = token + 1, attempts = attempts + 0, worker = $3",
    ),
    _bug(
        "one statement claims by a gate that has changed",
        _GATE,
        "AND (g.document = q.gate OR true)",
    ),
    Bug(
        "scans begin at a bound that is too high",
        on="postgres",
        patches=((ScanBounds, "below", lambda self, line: self._bounds.get(line, 0) + 3),),
    ),
    _bug(
        "one statement forgets an idempotency key",
        "SELECT $13, $14, $3::uuid FROM present",
        "SELECT $13, $14, $3::uuid FROM present WHERE false",
    ),
    _bug(
        "one statement leaves what it settles to whoever comes",
        "SET status = 2, settled_at = present.now, worker = NULL, lease_until = NULL",
        "SET status = 0, settled_at = NULL, worker = NULL, lease_until = NULL",
    ),
)
