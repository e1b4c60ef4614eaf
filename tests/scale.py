"""How much the tests try: little, so that they are quick; `make prove` asks for more."""

from __future__ import annotations

import os

__all__ = ["IS_LONG", "scaled"]

IS_LONG = bool(os.environ.get("REDRIVE_TEST_LONG"))
"""Whether sizes are those of an acceptance run."""


def scaled(what: str, *, usually: int) -> int:
    """Return a number that the environment may raise, as `REDRIVE_TEST_KILLS` does."""
    return int(os.environ.get(f"REDRIVE_TEST_{what}", usually))
