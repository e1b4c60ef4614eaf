"""What keeps the queue honest while workers run: duties, and the caretaker who does them."""

from __future__ import annotations

from redrive.maintenance.caretaker import Caretaker
from redrive.maintenance.duties import expire, rescue, shed
from redrive.maintenance.examiner import Examiner

__all__ = ["Caretaker", "Examiner", "expire", "rescue", "shed"]
