"""What became of a published event."""

from __future__ import annotations

from rich.text import Text

from redrive.cli.show.words import safe
from redrive.model.event import Receipt

__all__ = ["receipt"]


def receipt(given: Receipt) -> Text:
    """Say where the event goes."""
    if given.is_duplicate:
        return Text(f"Published before as {given.event_id}; nothing new was stored.")
    if given.destinations:
        return Text(f"Published {given.event_id} to {', '.join(map(safe, given.destinations))}.")
    if given.readers:
        return Text(
            f"Published {given.event_id} for {', '.join(map(safe, given.readers))} to read."
        )
    return Text(f"Published {given.event_id}.")
