"""Journaled: what requests about the journal may hold."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from redrive.web.requests import Act, Given

__all__ = ["DrainJournal", "LookIntoJournal", "ShowRecords"]


class DrainJournal(Act, frozen=True, kw_only=True):
    """Whether what is for a store of another address is given to this one as well."""

    any_store: bool = False


class LookIntoJournal(Given, frozen=True, kw_only=True):
    """Whether files that are drained are read as well."""

    verify: bool = False


class ShowRecords(Given, frozen=True, kw_only=True):
    """Which records of a file: those that end behind a byte of it, or only damaged lines."""

    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    damaged: bool = False
