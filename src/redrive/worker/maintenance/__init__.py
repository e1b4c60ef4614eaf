"""What keeps the queue honest while workers run: duties, and the caretaker who does them."""

from __future__ import annotations

from redrive.worker.maintenance.caretaker import Caretaker
from redrive.worker.maintenance.duties import catch_up, expire, rescue, shed
from redrive.worker.maintenance.examiner import Examiner
from redrive.worker.maintenance.housekeeper import Housekeeper, Upkeep
from redrive.worker.maintenance.replays import advance_replays, start_auto_replays

__all__ = [
    "Caretaker",
    "Examiner",
    "Housekeeper",
    "Upkeep",
    "advance_replays",
    "catch_up",
    "expire",
    "rescue",
    "shed",
    "start_auto_replays",
]
