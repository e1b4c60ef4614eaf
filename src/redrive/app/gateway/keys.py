"""Keys of documents as a command line has them: `rate=10/s auth.bearer=env:CRM_TOKEN`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from redrive.errors import UsageError

__all__ = ["read_keys"]


def read_keys(given: Sequence[str]) -> dict[str, Any]:
    """Return a document; a value is TOML, or text if it is none, and an empty one is nothing.

    >>> read_keys(["rate=10/s", "enabled=true", "auth.bearer=env:TOKEN", "timeout="])
    {'rate': '10/s', 'enabled': True, 'auth': {'bearer': 'env:TOKEN'}, 'timeout': None}
    """
    document: dict[str, Any] = {}
    for one in given:
        key, separator, value = one.partition("=")
        parts = key.split(".")
        if not separator or not all(parts):
            raise UsageError(f"{one!r} is no key with a value; write it as KEY=VALUE.")
        table = document
        for part in parts[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UsageError(f"{key!r} goes into {part!r}, which has a value of its own.")
        table[parts[-1]] = _value(value)
    return document


def _value(text: str) -> Any:  # noqa: ANN401 - whatever TOML can say
    if not text:
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
