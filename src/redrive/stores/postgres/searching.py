"""Looking for text in any case, whatever the locale and the version of the server.

PostgreSQL's `lower` goes by the locale, so what has to be folded is written into the question.
"""

from __future__ import annotations

from collections.abc import Sequence

from redrive.stores.folding import folding

__all__ = ["contains"]


def contains(text: str, columns: Sequence[str], first: int) -> tuple[str, list[object]]:
    """Return the condition that a text is in one of these columns, and its values.

    `first` is the number of the first of its placeholders.
    """
    how = folding(text)
    conditions = []
    for column in columns:
        folded = f"translate({column}, ${first + 1}, ${first + 2})"
        for letter, result in how.several:
            folded = f"replace({folded}, '{letter}', '{result}')"
        conditions.append(f"position(${first} in {folded}) > 0")
    return f"({' OR '.join(conditions)})", [how.sought, how.letters, how.results]
