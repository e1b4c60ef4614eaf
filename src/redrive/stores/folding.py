"""How letters fold, for databases that cannot: text is found in any case, as Unicode has it.

Only those letters have to be folded that become a letter of what is looked for, and they are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

__all__ = ["Folding", "folding"]

_ALPHABETS = range(0x20000)
"""No script beyond these has capital letters."""


class Folding(NamedTuple):
    """A text to look for, folded, and what has to be folded of what it is looked for in.

    Each of `letters` becomes the one of `results` in its place; those of `several` become more.
    """

    sought: str
    letters: str
    results: str
    several: Sequence[tuple[str, str]]


def folding(text: str) -> Folding:
    """Return how to look for a text in any case.

    >>> folding("Ä")
    Folding(sought='ä', letters='Ä', results='ä', several=[])
    """
    single, several = _by_result()
    sought = text.casefold()
    pairs = [(letter, one) for one in dict.fromkeys(sought) for letter in single.get(one, ())]
    many = dict.fromkeys(pair for one in sought for pair in several.get(one, ()))
    return Folding(
        sought=sought,
        letters="".join(letter for letter, _ in pairs),
        results="".join(one for _, one in pairs),
        several=list(many),
    )


@cache
def _by_result() -> tuple[dict[str, list[str]], dict[str, list[tuple[str, str]]]]:
    """Return which letters become one, and which become several with it among them."""
    single: dict[str, list[str]] = {}
    several: dict[str, list[tuple[str, str]]] = {}
    for letter in map(chr, _ALPHABETS):
        result = letter.casefold()
        if result == letter:
            continue
        if len(result) == 1:
            single.setdefault(result, []).append(letter)
        else:
            for one in dict.fromkeys(result):
                several.setdefault(one, []).append((letter, result))
    return single, several
