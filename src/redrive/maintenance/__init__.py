"""What keeps the queue honest while workers run: duties, and the caretaker who does them."""

from __future__ import annotations

from redrive.maintenance.caretaker import Caretaker
from redrive.maintenance.duties import expire, rescue
from redrive.maintenance.keeping import Housekeeper, Upkeep

__all__ = ["Caretaker", "Housekeeper", "Upkeep", "expire", "rescue"]
