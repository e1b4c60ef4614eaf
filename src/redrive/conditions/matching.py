"""Patterns of conditions: by RE2, whose time grows with the text and never explodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec

from redrive.conditions.values import searchable
from redrive.errors import ConfigurationError

__all__ = ["Patterns"]

_LONGEST = 500
"""How many letters all patterns of a condition may have together."""
_LONGEST_TEXT = 2**12
_LARGEST = 2**18
"""How many bytes a pattern may take; RE2 keeps to it."""
_MOST_TIMES = 50
_TIMES = re.compile(r"\{(\d*)(?:,(\d*))?\}")


class Patterns:
    """The patterns of one condition, which together may take so much and no more."""

    def __init__(self) -> None:
        self._letters = 0

    def compile(self, pattern: str) -> Callable[[object], bool]:
        """Return what tells whether a text has something that fits, or say what is wrong."""
        self._letters += len(pattern)
        if self._letters > _LONGEST:
            raise ConfigurationError(
                f"the patterns of a condition have at most {_LONGEST} letters, all together."
            )
        if any(int(times or 0) > _MOST_TIMES for pair in _TIMES.findall(pattern) for times in pair):
            raise ConfigurationError(f"a pattern repeats something at most {_MOST_TIMES} times.")
        search = _search(pattern)
        return lambda value: search(searchable("matches", value, _LONGEST_TEXT)) is not None


def _search(pattern: str) -> Callable[[str], object]:
    if find_spec("re2") is None:
        raise ConfigurationError(
            "matches needs google-re2, which is not installed; "
            "install it with: pip install 'redrive[gateway]'"
        )
    import re2  # noqa: PLC0415 - it is an extra

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _LARGEST
    try:
        search: Callable[[str], object] = re2.compile(pattern, options).search
    except re2.error as error:
        said = error.args[0] if error.args else ""
        told = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise ConfigurationError(f"the pattern is none that RE2 knows: {told}.") from None
    return search
