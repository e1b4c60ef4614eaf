"""Looking for text in any case, whatever the locale and the version of the server.

PostgreSQL's `lower` goes by the locale, so what has to be folded is written into the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redrive.stores.folding import folding

__all__ = ["contains"]

_ESCAPED = frozenset('"\\')
_NUL = r"position('\u0000' in {}) > 0"


def contains(
    text: str, columns: Sequence[str], first: int, *, parts: Mapping[str, str]
) -> tuple[str, list[object]]:
    """Return the condition that a text is in one of these columns, and its values.

    `parts` are columns that take long to make, each with the one that it is a part of: what is not
    in that is not in them. `first` is the number of the first of its placeholders.
    """
    how = folding(text)

    def is_in(column: str) -> str:
        folded = f"translate({column}, ${first + 1}, ${first + 2})"
        for letter, result in how.several:
            folded = f"replace({folded}, '{letter}', '{result}')"
        # Most texts are plain, and those have capitals that are quickly folded.
        return f"""CASE WHEN octet_length(convert_to({column}, 'UTF8')) = length({column})
            THEN position(${first} in lower({column} COLLATE "C")) > 0
            ELSE position(${first} in {folded}) > 0 END"""

    conditions = [is_in(column) for column in columns]
    for part, whole in parts.items():
        # A part is told with other escapes than the whole that it was taken out of.
        may_be = (
            "true" if _ESCAPED.intersection(text) else f"({is_in(whole)} OR {_NUL.format(whole)})"
        )
        conditions.append(f"({may_be} AND {is_in(part)})")
    return f"({' OR '.join(conditions)})", [how.sought, how.letters, how.results]
