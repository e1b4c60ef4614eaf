"""To whom events were given."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from redrive.stores.sql.session import Session

__all__ = ["give", "names_of", "note_given"]

_GIVEN = """
SELECT position, destinations FROM redrive.events WHERE position = ANY ($1::bigint[])
ORDER BY position FOR NO KEY UPDATE
"""
_GIVE = """
UPDATE redrive.events AS e SET destinations = given.names
FROM json_to_recordset($1::json) AS given (position bigint, names text[])
WHERE e.position = given.position
"""
_names = msgspec.json.Decoder(tuple[str, ...])


def names_of(column: Any) -> tuple[str, ...]:  # noqa: ANN401 - an array, or its JSON
    """Read the destinations that an event was given to."""
    return _names.decode(column) if isinstance(column, str) else tuple(column)


async def give(session: Session, given: Sequence[tuple[int, str | None, str]]) -> None:
    """Note that events, each by its position, were given to one more destination.

    Where another is named before it, it was given instead of that one.
    """
    found = await session.fetch(_GIVEN, [position for position, _, _ in given])
    names = {position: set(names_of(column)) for position, column in found}
    for position, before, name in given:
        names[position] = names[position] - {before} | {name}
    await note_given(session, names)


async def note_given(session: Session, names: Mapping[int, Collection[str]]) -> None:
    """Note to whom events, each by its position and locked, were given in all."""
    rows = [{"position": position, "names": sorted(one)} for position, one in names.items()]
    await session.fetch(_GIVE, session.records(rows))
