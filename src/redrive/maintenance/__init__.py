"""What keeps the queue honest while workers run: duties, and the caretaker who does them."""

from __future__ import annotations

from redrive.maintenance.caretaker import Caretaker
from redrive.maintenance.duties import expire, rescue

__all__ = ["Caretaker", "expire", "rescue"]
