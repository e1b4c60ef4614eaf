"""Planted bugs of which declaration is in force, while releases are rolled out and back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from redrive.model.destination import Destination
from redrive.model.standing import Standing
from redrive.policies import declaring
from redrive.stores.declaring import Ruling
from redrive.stores.memory import MemoryStore
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]

_brought = declaring.brought


def _back_beside_others(
    standing: Standing | None,
    declared: Destination,
    *,
    is_worker: bool,
    by_others: Collection[str],
    now: datetime,
    lease: timedelta,
) -> Standing:
    return _brought(standing, declared, is_worker=is_worker, by_others=(), now=now, lease=lease)


def _as_a_whole(
    standing: Standing | None,
    declared: Destination,
    *,
    is_worker: bool,
    by_others: Collection[str],
    now: datetime,
    lease: timedelta,
) -> Standing:
    return _brought(standing, declared, is_worker=True, by_others=by_others, now=now, lease=lease)


def _only_patterns(
    standing: Standing | None,
    declared: Destination,
    *,
    is_worker: bool,
    by_others: Collection[str],
    now: datetime,
    lease: timedelta,
) -> Standing:
    return _brought(standing, declared, is_worker=False, by_others=by_others, now=now, lease=lease)


class ChangeNotTold(MemoryStore):
    def _keep(self, rulings: Sequence[Ruling]) -> None:
        version = self._routes_version
        super()._keep(rulings)
        self._routes_version = version or self._routes_version


BUGS: tuple[Bug, ...] = (
    Bug(
        "old declaration back beside workers",
        patches=((declaring, "brought", _back_beside_others),),
    ),
    Bug("publisher declares as a whole", patches=((declaring, "brought", _as_a_whole),)),
    Bug("worker declares only patterns", patches=((declaring, "brought", _only_patterns),)),
    Bug("change of routes not told", store=ChangeNotTold),
)
