"""Lines: a record of the journal as JSON with a checksum, and back."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from redrive.errors import JournalError, SecretError
from redrive.model.event import Event
from redrive.model.outcome import Fault
from redrive.model.settlement import FailureReason
from redrive.store import LineSeal, Tried, Unique, is_sealed_line

__all__ = [
    "VERSION",
    "EventRecord",
    "Header",
    "JournalLine",
    "PublishedRecord",
    "Record",
    "SealedRecord",
    "TriedRecord",
    "event_of",
    "is_newer",
    "opened",
    "read_header",
    "read_lines",
    "write_header",
    "write_record",
]

VERSION = 1


class TriedRecord(msgspec.Struct, frozen=True, tag="tried"):
    """A tracked event, where it has arrived, and what is left of it."""

    tried: Tried


class EventRecord(msgspec.Struct, frozen=True, tag="tracked", omit_defaults=True):
    """A tracked event that nobody has routed yet; with a reason it is to be a dead letter."""

    event: Event[msgspec.Raw]
    reason: FailureReason | None = None
    fault: Fault | None = None


class PublishedRecord(msgspec.Struct, frozen=True, tag="published", omit_defaults=True):
    """An event that was published while the store did not answer."""

    event: Event[msgspec.Raw]
    expected_version: int | None = None
    unique: Unique | None = None


class SealedRecord(msgspec.Struct, frozen=True, tag="sealed"):
    """A record that is encrypted, as it is in the file."""

    text: msgspec.Raw


Record = TriedRecord | EventRecord | PublishedRecord


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file: what it is, and who wrote it."""

    redrive: str
    version: int
    host: str
    process: int
    began: datetime
    store: str = ""
    """For which store it is, as people may see its address."""


class _Sealed(msgspec.Struct, frozen=True):
    crc: int
    record: msgspec.Raw


class JournalLine(NamedTuple):
    """A line of a file: its record, or what is wrong with it; and where the next one begins."""

    record: Record | SealedRecord | None
    damage: str
    end: int


_records = msgspec.json.Decoder(Record)
_sealed = msgspec.json.Decoder(_Sealed)
_headers = msgspec.json.Decoder(Header)
_encoder = msgspec.json.Encoder()


def event_of(record: Record) -> Event[msgspec.Raw]:
    """Return the event that a record is about."""
    return record.tried.event if isinstance(record, TriedRecord) else record.event


def opened(record: Record | SealedRecord, seal: LineSeal | None) -> Record:
    """Return a record, decrypted if it is not; `JournalError` says why that cannot be."""
    if not isinstance(record, SealedRecord):
        return record
    if seal is None:
        raise JournalError("It is encrypted, and there is nothing here to decrypt it with.")
    try:
        found: Record = _records.decode(seal.open(bytes(record.text)))
    except SecretError as error:
        raise JournalError(f"It is left as it is: {error}") from error
    return found


def write_record(record: Record, seal: LineSeal | None = None) -> bytes:
    """Return a record as a line, encrypted if that is to be."""
    body = _encoder.encode(record)
    if seal is not None:
        body = seal.seal(body)
    return b'{"crc":%d,"record":%s}\n' % (zlib.crc32(body), body)


def write_header(*, host: str, process: int, began: datetime, store: str) -> bytes:
    """Return the first line of a file."""
    header = Header(
        redrive="journal", version=VERSION, host=host, process=process, began=began, store=store
    )
    return _encoder.encode(header) + b"\n"


def read_header(path: Path) -> Header | None:
    """Return the first line of a file, or `None` if its writer never got so far.

    A file of a newer version raises `JournalError`: it is left as it is.
    """
    with path.open("rb") as file:
        first = file.readline()
    try:
        header = _headers.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if not first.endswith(b"\n"):  # torn while it was begun, so nothing is in it
            return None
        raise JournalError(
            f"{path} is no journal of Redrive: its first line does not say so. Move it out of the "
            "journal's folder."
        ) from None
    if header.version > VERSION:
        raise JournalError(
            f"{path} was written by a newer Redrive (its version is {header.version}, and this one "
            f"reads up to {VERSION}). It is left as it is: drain it with that release."
        )
    return header


def is_newer(path: Path) -> bool:
    """Tell whether a file is of a version that this one does not read."""
    with path.open("rb") as file:
        first = file.readline()
    try:
        return _headers.decode(first).version > VERSION
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def read_lines(path: Path, *, after: int = 0) -> Iterator[JournalLine]:
    """Return the lines of a file behind a place in it, its header left out.

    A last line that was cut off is not there: its writer never said that it was durable.
    """
    with path.open("rb") as file:
        place = after or len(file.readline())
        file.seek(place)
        for text in file:
            end = place + len(text)
            record, damage = _read(text)
            if record is None and not text.endswith(b"\n"):
                return
            yield JournalLine(record, damage, end)
            place = end


def _read(text: bytes) -> tuple[Record | SealedRecord | None, str]:
    try:
        sealed = _sealed.decode(text)
        if zlib.crc32(bytes(sealed.record)) != sealed.crc:
            return None, "its checksum does not fit"
        if is_sealed_line(bytes(sealed.record)):
            return SealedRecord(sealed.record.copy()), ""
        return _records.decode(sealed.record), ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return None, f"it cannot be read: {error}"
