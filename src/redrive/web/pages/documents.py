"""What the pages of services, rules, sources and schedules do alike: the documents of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from urllib.parse import quote

import msgspec

from redrive.errors import UsageError
from redrive.model.rule import DocumentKind
from redrive.policies.difference import spelled
from redrive.store import KeptVersion
from redrive.web.pages.editing import read_json, readable
from redrive.web.pages.page import Moved, Visit

__all__ = ["VersionRow", "back", "read_document", "text_of", "version_rows"]


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A version, and what it changed of the one before."""

    version: KeptVersion
    changed: str


def version_rows(versions: Sequence[KeptVersion]) -> tuple[VersionRow, ...]:
    """Return versions, the latest first, each with what it changed."""
    return tuple(
        VersionRow(
            version=one,
            changed=""
            if before is None
            else spelled(before.kept.document, one.kept.document) or "nothing",
        )
        for one, before in zip_longest(versions, versions[1:])
    )


def text_of(document: Mapping[str, object]) -> str:
    """Return a document as people read it, and type it."""
    return readable(msgspec.Raw(msgspec.json.encode(document)))


def read_document(kind: DocumentKind, text: str) -> dict[str, object]:
    """Read a document that was typed."""
    found = msgspec.json.decode(read_json(text))
    if not isinstance(found, dict):
        raise UsageError(f"A {kind} is a JSON object; begin it with {{.")
    return found


def back(kind: DocumentKind, visit: Visit, said: str) -> Moved:
    """Go back to the page of the document that was acted on."""
    return Moved(f"/{kind}s/{quote(visit.name, safe='')}", said)
