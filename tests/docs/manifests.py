"""A reader of manifests: as much of YAML as they need, and strict about it."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["read_manifests"]

_PAIR = re.compile(r"([\w./-]+):(?: (.+))?")

Line = tuple[int, int, str]
"""Its number, how far it is indented, and what it says."""


def read_manifests(text: str) -> list[Any]:
    """Read documents of mappings, lists and words; anything else is a `ValueError`."""
    documents: list[list[Line]] = [[]]
    for number, line in enumerate(text.splitlines(), start=1):
        if line == "---":
            documents.append([])
        elif line.strip():
            body = line.lstrip(" ")
            if body != line.strip():
                raise ValueError(f"line {number} has a tab, or blanks at its end: {line!r}")
            documents[-1].append((number, len(line) - len(body), body))
    return [_read(lines) for lines in documents]


def _read(lines: list[Line]) -> Any:  # noqa: ANN401 - any document
    value, rest = _value(lines, lines[0][1])
    if rest:
        raise ValueError(f"line {rest[0][0]} fits nothing above it: {rest[0][2]!r}")
    return value


def _value(lines: list[Line], indent: int) -> tuple[Any, list[Line]]:
    is_list = lines[0][2].startswith("- ")
    return _list(lines, indent) if is_list else _mapping(lines, indent)


def _list(lines: list[Line], indent: int) -> tuple[list[Any], list[Line]]:
    found: list[Any] = []
    while lines and lines[0][1] == indent and lines[0][2].startswith("- "):
        number, _, body = lines[0]
        inner = body[2:]
        if _PAIR.fullmatch(inner):
            item, lines = _mapping([(number, indent + 2, inner), *lines[1:]], indent + 2)
            found.append(item)
        else:
            found.append(inner)
            lines = lines[1:]
    return found, lines


def _mapping(lines: list[Line], indent: int) -> tuple[dict[str, Any], list[Line]]:
    found: dict[str, Any] = {}
    while lines and lines[0][1] == indent and not lines[0][2].startswith("- "):
        number, _, body = lines[0]
        pair = _PAIR.fullmatch(body)
        if pair is None or pair[1] in found:
            raise ValueError(f"line {number} is no name with a value, or names it twice: {body!r}")
        lines = lines[1:]
        if pair[2] is not None:
            found[pair[1]] = pair[2]
        elif lines and lines[0][1] > indent:
            found[pair[1]], lines = _value(lines, lines[0][1])
        else:
            raise ValueError(f"line {number} has no value: {body!r}")
    return found, lines
