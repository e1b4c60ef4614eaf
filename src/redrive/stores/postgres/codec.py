"""How values look in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from redrive.stores.codec import json_text

__all__ = ["array_text", "columns", "is_uuid", "jsonb", "numbers"]


_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def jsonb(value: object) -> str:
    """Return a value as JSON text that PostgreSQL can keep: it has no NUL character."""
    text = json_text(value)
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def array_text(names: Sequence[str]) -> str:
    """Return names as the text of an array; one that is not quoted may be read as NULL."""
    return "{" + ",".join([f'"{one}"' for one in names]) + "}"


def is_uuid(text: str) -> bool:
    """Tell whether a text can be compared with a column of UUIDs."""
    return _UUID.fullmatch(text) is not None


def columns(rows: Sequence[Sequence[object]], width: int) -> list[list[object]]:
    """Turn rows into the columns that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def numbers(values: Iterable[int]) -> str:
    """Return whole numbers as the text of an array: the driver takes long for each element."""
    return "{" + ",".join(map(str, values)) + "}"
