"""How values look in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from redrive.model.delivery import Kind, Status
from redrive.stores.codec import json_text

__all__ = ["KINDS", "STATUSES", "columns", "jsonb", "read_json"]

KINDS = (Kind.FIRST, Kind.RETRY, Kind.REPLAY)
STATUSES = (Status.PENDING, Status.IN_FLIGHT, Status.DELIVERED, Status.FAILED)

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def jsonb(value: object) -> str:
    """Return a value as JSON text that PostgreSQL can keep: it has no NUL character."""
    text = json_text(value)
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def read_json(decoder: msgspec.json.Decoder[object], document: str | None) -> object:
    """Read a document, if there is one."""
    return None if document is None else decoder.decode(document)


def columns(rows: Sequence[Sequence[object]], width: int) -> list[list[object]]:
    """Turn rows into the columns that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
