"""To whom events were given, in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.connection import Link

__all__ = ["give", "give_instead"]

_GIVE = """
UPDATE redrive.events e SET destinations = ARRAY(
    SELECT DISTINCT name COLLATE "C"
    FROM unnest(array_remove(e.destinations, given.before) || given.names) AS name
    ORDER BY name COLLATE "C"
)
FROM (
    SELECT position, max(before) AS before, array_agg(name) AS names
    FROM unnest($1::bigint[], $2::text[], $3::text[]) AS one (position, before, name)
    GROUP BY position
) AS given
WHERE e.position = given.position
"""


async def give(link: Link, given: Sequence[tuple[int, str]]) -> None:
    """Note that events, each by its position, were given to one more destination."""
    await give_instead(link, [(position, None, name) for position, name in given])


async def give_instead(link: Link, given: Sequence[tuple[int, str | None, str]]) -> None:
    """Note that events were given to another destination, each once, instead of the one named."""
    if given:
        await link.fetch(_GIVE, *columns(given, 3))
