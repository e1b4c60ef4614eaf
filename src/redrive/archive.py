"""The archive: dead letters as lines of a file, durable before they leave the store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from redrive.errors import ConfigurationError, SecretError, UsageError
from redrive.model.audit import Actor
from redrive.model.event import Event
from redrive.model.letter import Letter
from redrive.policies.attention import expiring, overflow
from redrive.policies.display import escape_encoded
from redrive.policies.payload import check_payload, check_size
from redrive.store import Housekeeping, LetterQuota, LineSeal, is_sealed_line

__all__ = [
    "REDACTED_HEADER",
    "WHOLE_HEADER",
    "Archive",
    "Exported",
    "Found",
    "check_letter",
    "export_overflow",
    "is_header",
    "open_archive",
    "read_line",
    "write_line",
    "write_redacted",
]

_ACTOR = Actor("redrive", "over the limit of dead letters that the destination keeps")
_MOST_AT_ONCE = 500
_READABLE_BY_OWNER = 0o600

_encoder = msgspec.json.Encoder()
_letters = msgspec.json.Decoder(Letter)
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _header(form: str, note: str) -> bytes:
    return _encoder.encode({"redrive": "dead letters", "form": form, "note": note}) + b"\n"


WHOLE_HEADER = _header(
    "whole",
    "These dead letters are whole, with the secrets in their payloads and headers; they can be "
    "imported. Let nobody else read them: to share, use `redrive dlq export --redacted`.",
)
"""The first line of a file of dead letters."""
REDACTED_HEADER = _header(
    "redacted",
    "In these dead letters secrets are blanked, so that they can be shared; they cannot be "
    "imported.",
)
_HEADER_START = b'{"redrive":'
_BLANK = b'{"redrive":"erased","form":"whole"}'
"""What stands for a letter of an erased event: read as one more header, it says nothing."""


def is_header(line: bytes) -> bool:
    """Tell whether a line is the first of a file, or was before files were put together.

    A file whose letters are redacted is refused with a `UsageError`: what was blanked is lost.
    """
    if not line.startswith(_HEADER_START):
        return False
    try:
        header = _objects.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    if bytes(header.get("form", b"")) == b'"redacted"':
        raise _redacted()
    return True


def _redacted() -> UsageError:
    return UsageError(
        "The secrets of these dead letters are blanked, so they are there to be read and cannot be "
        "imported; import what `redrive dlq export` has written without --redacted."
    )


def write_redacted(letter: Letter) -> bytes:
    """Return a dead letter whose secrets were blanked as one line that is never imported."""
    fields = _objects.decode(write_line(letter))
    return escape_encoded(_encoder.encode(fields | {"redacted": True})) + b"\n"


def write_line(letter: Letter, seal: LineSeal | None = None) -> bytes:
    """Return a dead letter as one line of JSON, in which no terminal finds anything to obey.

    With a seal it is encrypted while the store is.
    """
    line = _encoder.encode(letter)
    # A payload is kept as it was written; a line break in it can only be blank space.
    line = escape_encoded(line.replace(b"\r", b" ").replace(b"\n", b" "))
    return (line if seal is None else seal.seal(line)) + b"\n"


def read_line(
    line: bytes, *, payload_limit: int | None = None, seal: LineSeal | None = None
) -> Letter:
    """Read a line, or say in a `UsageError` what is wrong with it; an encrypted one by its seal."""
    if is_sealed_line(line):
        if seal is None:
            raise UsageError("It is encrypted: import it where its keys are.")
        try:
            line = seal.open(line)
        except SecretError as error:
            raise UsageError(str(error)) from error
    try:
        letter = _read(line)
        check_letter(letter, payload_limit=payload_limit)
    except UsageError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        # What a check of a value finds wrong comes wrapped, with the place it was found at.
        raise UsageError(f"It is no dead letter: {str(error).rstrip('.')}.") from error
    return letter


def check_letter(letter: Letter, *, payload_limit: int | None = None) -> None:
    """Refuse what no store of ours has written, and payloads that could not have been published."""
    letter.check()
    for payload in (letter.event.payload, letter.delivery.payload):
        if payload is not None:
            check_payload(payload)
            if payload_limit is not None:
                what = f"the letter of event {letter.event.id}"
                check_size(bytes(payload), payload_limit, what=what)


def _read(line: bytes) -> Letter:
    """Read a line whose delivery may carry a payload of its own: any JSON, `null` included."""
    fields = _objects.decode(line)
    if "redacted" in fields:
        raise _redacted()
    if not bytes(fields.get("delivery", b"")).lstrip().startswith(b"{"):
        return _letters.decode(line)
    told = _objects.decode(fields["delivery"])
    payload = told.pop("payload", msgspec.Raw(b"null")).copy()
    letter = _letters.decode(_encoder.encode(fields | {"delivery": told}))
    if bytes(payload) == b"null" and not letter.delivery.edits:
        return letter
    delivery = msgspec.structs.replace(letter.delivery, payload=payload)
    return msgspec.structs.replace(letter, delivery=delivery)


class Found(NamedTuple):
    """Where a line is in a file of the archive, and how long."""

    path: Path
    place: int
    size: int


class Archive:
    """A folder with a file for each destination and day."""

    def __init__(self, folder: Path, *, seal: LineSeal | None = None) -> None:
        self._seal = seal
        self.folder = folder.absolute()  # once: the working directory may change

    def prepare(self) -> None:
        """Make sure that files can be written to it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"The export folder {self.folder} cannot be made: {error.strerror}. "
                "Name another with export_folder."
            ) from error
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise ConfigurationError(
                f"The export folder {self.folder} cannot be written; let this user write in it, "
                "or name another with export_folder."
            )

    def find(self, is_meant: Callable[[Event[msgspec.Raw]], bool]) -> list[Found]:
        """Return the dead letters of some events, by file and place; what is unreadable is passed.

        Files that others have put into the folder are looked through as well.
        """
        found = []
        for path in self._files():
            place = 0
            with path.open("rb") as file:
                for line in file:
                    with suppress(UsageError):
                        if not is_header(line) and is_meant(read_line(line, seal=self._seal).event):
                            found.append(Found(path, place, len(line.rstrip(b"\n"))))
                    place += len(line)
        return found

    def blank(self, found: Sequence[Found]) -> None:
        """Write over dead letters where they stand, so that their bytes are gone from the files."""
        by_path: dict[Path, list[Found]] = {}
        for one in found:
            by_path.setdefault(one.path, []).append(one)
        for path, some in by_path.items():
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                for one in some:
                    os.pwrite(file, _BLANK.ljust(one.size), one.place)
                os.fsync(file)
            finally:
                os.close(file)

    def _files(self) -> list[Path]:
        try:
            return sorted(self.folder.glob("*.jsonl"))
        except OSError:
            return []

    def add(self, destination: str, letters: Sequence[Letter], *, now: datetime) -> Path:
        """Add dead letters to the file of the day, and return it when they are on the disk."""
        path = self.folder / f"{destination}-{now:%Y-%m-%d}.jsonl"
        lines = b"".join(write_line(one, self._seal) for one in letters)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        file = os.open(path, flags, _READABLE_BY_OWNER)
        try:
            size = os.fstat(file).st_size
            if not size:
                lines = WHOLE_HEADER + lines
            if size and os.pread(file, 1, size - 1) != b"\n":  # the end of a write that was cut
                lines = b"\n" + lines
            while lines:
                lines = lines[os.write(file, lines) :]
            os.fsync(file)
        finally:
            os.close(file)
        _sync_folder(self.folder)
        return path


def open_archive(
    folder: str, *, is_needed: bool = True, seal: LineSeal | None = None
) -> Archive | None:
    """Return the archive in a folder, which must be there to be written if it `is_needed`."""
    if not folder:
        return None
    archive = Archive(Path(folder), seal=seal)
    if is_needed:
        archive.prepare()
    return archive


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file last; some systems cannot, and need not."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters went to which file, or why none could."""

    count: int = 0
    file: str = ""
    error: str = ""


async def export_overflow(
    store: Housekeeping,
    quota: LetterQuota,
    *,
    archive: Archive | None,
    submit: Callable[[Callable[[], Path]], asyncio.Future[Path]],
) -> Exported:
    """Export some of the dead letters over their destination's limit, then remove them.

    Without an archive, or if the file cannot be written, nothing is removed.
    """
    number, limit = overflow(quota), expiring(quota)
    if not number and limit is None:
        return Exported()
    if archive is None:
        return Exported(error="no export_folder is set, so its dead letters stay, too many or not")
    oldest = await store.oldest_letters(quota.destination, limit=_MOST_AT_ONCE)
    letters = [
        one
        for place, one in enumerate(oldest)
        if place < number or (limit is not None and _failed_at(one) <= limit)
    ]
    if not letters:
        return Exported()
    # What failed first need not have been published first; what is imported keeps the file's order.
    letters.sort(key=lambda one: one.delivery.id)
    try:
        path = await submit(lambda: archive.add(quota.destination, letters, now=quota.now))
    except SecretError as error:
        return Exported(error=str(error).rstrip("."))
    except OSError as error:
        return Exported(error=f"{archive.folder} cannot be written: {error.strerror or error}")
    gone = await store.discard(letters, actor=_ACTOR, detail=str(path))
    return Exported(count=len(gone), file=str(path))


def _failed_at(letter: Letter) -> datetime:
    return letter.delivery.settled_at or letter.delivery.enqueued_at
