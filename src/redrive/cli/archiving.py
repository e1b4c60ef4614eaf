"""The commands about what is kept: prune, and dead letters to files and back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple

import typer

from redrive.cli.asking import confirm
from redrive.cli.options import By, Filters, Json, OutOfOrder, Store, Why, Yes, with_filters
from redrive.cli.printing import print_json, print_result, print_warning, progress
from redrive.cli.session import current_user, in_session, settings_of

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.model.letter import Letter
    from redrive.model.retention import Retention
    from redrive.operations import PrunePlan
    from redrive.policies.redact import Redaction
    from redrive.sealing import SealedLines, Vault
    from redrive.store import Restored

__all__ = ["export", "import_letters", "prune"]

_BATCH = 500
_MOST_COMPLAINTS = 20

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP",
        help="The app whose settings hold, such as shop:app; those of redrive.toml if left out.",
    ),
]


def prune(
    target: Target = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Yes = False,
    by: By = None,
    why: Why = "",
    store: Store = None,
    json: Json = False,
) -> None:
    """Remove what was kept long enough, as workers do by themselves."""
    from redrive.cli.show.archiving import pruned, would_prune

    app = _app_of(target)
    retention, plan = in_session(_plan_prune, store=store, app=app)
    if dry_run or plan.is_empty:
        if json:
            print_json({"would_prune": plan})
        else:
            print_result(would_prune(plan, retention))
        return
    if not yes:
        if not json:
            print_result(would_prune(plan, retention))
        confirm("Go on?")

    async def work(app: Operated) -> PrunePlan:
        with progress("Pruning", plan.pruned.delivered + plan.pruned.events) as advance:
            return await app.operations.prune(by=by or current_user(), why=why, progress=advance)

    done = in_session(work, store=store, app=app)
    if json:
        print_json({"pruned": done})
    else:
        print_result(pruned(done))


@with_filters
def export(
    filters: Filters,
    *,
    file: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A new file; standard output if left out, or -."),
    ] = None,
    redacted: Annotated[
        bool,
        typer.Option("--redacted", help="Blank secrets, to share it; it cannot be imported."),
    ] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Write dead letters as JSON lines, whole, to be imported again."""
    from redrive.archive import REDACTED_HEADER, WHOLE_HEADER, write_line, write_redacted
    from redrive.cli.reading import read_query

    query = read_query(filters)
    file = None if file == "-" else file

    async def work(app: Operated, write: Callable[[bytes], object]) -> int:
        count = 0
        rule = _rule_of(app) if redacted else None
        seal = None if redacted else await _seal_of(app)
        write(REDACTED_HEADER if redacted else WHOLE_HEADER)
        total = (await app.operations.status()).letters.count
        with progress("Exporting", total if file else 0) as advance:
            async for letter in app.operations.export(query):
                write(write_redacted(rule.letter(letter)) if rule else write_line(letter, seal))
                count += 1
                advance(1)
        return count

    if file is None:
        in_session(lambda app: work(app, _write_out), store=store, query=query)
        return
    with _new_file(Path(file)) as write:
        count = in_session(lambda app: work(app, write), store=store, query=query)
    if json:
        print_json({"exported": count, "file": file})
    else:
        print_result(f"Exported {_letters(count)} to {file}.")


def import_letters(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="As dlq export has written it; standard input if -."),
    ],
    *,
    strict: Annotated[
        bool, typer.Option("--strict", help="Import nothing if a line cannot be.")
    ] = False,
    out_of_order: OutOfOrder = False,
    by: By = None,
    why: Why = "",
    store: Store = None,
    json: Json = False,
) -> None:
    """Put exported dead letters back; those that are there change nothing."""
    how = _How(by=by, why=why, out_of_order=out_of_order)
    with _readable(file) as source:
        found = in_session(
            lambda app: (_import_all if strict else _import)(app, source, how), store=store
        )
    if json:
        print_json(
            {
                "imported": found.imported,
                "known": found.known,
                "bad": [{"line": line, "error": error} for line, error in found.bad],
                "removed": found.removed,
            }
        )
    else:
        known = f"; {found.known:,} were there already" if found.known else ""
        print_result(f"Imported {_letters(len(found.imported))}{known}.")
        _complain(found.bad)
        if found.removed:
            print_warning(
                f"no destination is declared as {', '.join(found.removed)}; what came back for it "
                "waits until one is, or until it is moved with `redrive destination move`."
            )
    if found.bad:
        raise typer.Exit(1)


class _Import(NamedTuple):
    """What is imported; it is read more than once."""

    name: str
    content: IO[bytes]


class _How(NamedTuple):
    """On whose behalf letters come back, and whether to a projection as well."""

    by: str | None
    why: str
    out_of_order: bool

    async def restore(self, app: Operated, letters: Sequence[Letter]) -> Restored:
        return await app.operations.restore(
            letters,
            by=self.by or current_user(),
            why=self.why,
            out_of_order=self.out_of_order,
        )


class _Imported(NamedTuple):
    imported: list[int]
    known: int
    bad: list[tuple[int, str]]
    removed: list[str]


async def _import(app: Operated, source: _Import, how: _How) -> _Imported:
    """Import what can be, and remember which lines cannot."""
    found = _Imported([], 0, [], [])
    names: set[str] = set()
    batch: dict[int, Letter] = {}

    with progress("Importing", sum(1 for _ in _lines(source))) as advance:
        for number, letter in _read(app, source):
            advance(1)
            if isinstance(letter, str):
                found.bad.append((number, letter))
                continue
            batch[number] = letter
            names.add(letter.delivery.destination)
            if len(batch) >= _BATCH:
                found = await _restore(app, batch, found, how)
                batch = {}
        found = await _restore(app, batch, found, how)
    return found._replace(bad=sorted(found.bad), removed=await _removed(app, names))


async def _import_all(app: Operated, source: _Import, how: _How) -> _Imported:
    """Import everything in one step, or nothing."""
    from redrive.errors import UsageError

    letters: list[Letter] = []
    bad: list[tuple[int, str]] = []
    for number, letter in _read(app, source):
        if isinstance(letter, str):
            bad.append((number, letter))
        else:
            letters.append(letter)
    if bad:
        _complain(bad)
        total = len(bad) + len(letters)
        raise UsageError(
            f"{len(bad):,} of {total:,} lines of {source.name} cannot be imported, so nothing was."
        )
    restored = await how.restore(app, letters)
    removed = await _removed(app, {one.delivery.destination for one in letters})
    return _Imported([*restored.deliveries], restored.known, [], removed)


async def _restore(
    app: Operated, batch: Mapping[int, Letter], found: _Imported, how: _How
) -> _Imported:
    """Put letters back together; if the store refuses one of them, one by one, to tell which."""
    from redrive.errors import UsageError

    try:
        restored = await how.restore(app, [*batch.values()])
    except UsageError as error:
        if len(batch) == 1:
            return found._replace(bad=[*found.bad, *((number, str(error)) for number in batch)])
        for number, letter in batch.items():
            found = await _restore(app, {number: letter}, found, how)
        return found
    imported = [*found.imported, *restored.deliveries]
    return found._replace(imported=imported, known=found.known + restored.known)


async def _removed(app: Operated, names: Collection[str]) -> list[str]:
    figures = await app.operations.status()
    return [one.name for one in figures.destinations if one.is_removed and one.name in names]


def _read(app: Operated, source: _Import) -> Iterator[tuple[int, Letter | str]]:
    """Yield each line's number with its letter, or with what is wrong with it."""
    from redrive.archive import read_line
    from redrive.errors import UsageError
    from redrive.sealing import SealedLines

    settings = settings_of(app)
    limit = None if settings is None else settings.payload_limit
    seal = SealedLines(_vault_of(app))
    for number, line in _lines(source):
        try:
            yield number, read_line(line, payload_limit=limit, seal=seal)
        except UsageError as error:
            yield number, str(error)


async def _seal_of(app: Operated) -> SealedLines:
    """Return what encrypts a file as the store is, or say that its key is not here."""
    from redrive.sealing import SealedLines

    vault = _vault_of(app)
    kept = await app.operations.encryption()
    vault.known = "" if kept is None else kept.key_id
    if vault.known:
        vault.check(vault.known)
    return SealedLines(vault)


def _vault_of(app: Operated) -> Vault:
    from redrive.clock import SystemEntropy
    from redrive.sealing import KeySource, Vault

    settings = settings_of(app)
    keys = KeySource("" if settings is None else settings.keys_file)
    return Vault(keys, entropy=SystemEntropy())


def _lines(source: _Import) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with a letter on them, or with nonsense, and their numbers."""
    from redrive.archive import is_header

    with _reading(source.name):
        source.content.seek(0)
        for number, line in enumerate(source.content, start=1):
            if line.strip() and not is_header(line):
                yield number, line


@contextmanager
def _readable(file: str) -> Iterator[_Import]:
    """Open a file, or keep what comes through a pipe in one that nobody else can see."""
    from shutil import copyfileobj
    from tempfile import TemporaryFile

    name = "standard input" if file == "-" else file
    with ExitStack() as stack:
        with _reading(name):
            given: IO[bytes] = (
                sys.stdin.buffer if file == "-" else stack.enter_context(Path(file).open("rb"))
            )
            content = given
            if file == "-" or not given.seekable():
                content = stack.enter_context(TemporaryFile())
                copyfileobj(given, content)
        yield _Import(name, content)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    from redrive.errors import UsageError

    try:
        yield
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.") from error


def _complain(bad: Iterable[tuple[int, str]]) -> None:
    complaints = list(bad)
    for number, error in complaints[:_MOST_COMPLAINTS]:
        print_warning(f"line {number}: {error}")
    if len(complaints) > _MOST_COMPLAINTS:
        print_warning(f"and {len(complaints) - _MOST_COMPLAINTS:,} more lines.")


@contextmanager
def _new_file(path: Path) -> Iterator[Callable[[bytes], object]]:
    """Write a file that appears under its name when it is complete and on the disk."""
    from redrive.errors import UsageError

    if path.exists():
        raise UsageError(f"There is a file {path} already; name a new one with --file.")
    part = path.with_name(f".{path.name}.part")
    try:
        # Others cannot read it at any moment.
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(file, "wb") as written:
            os.fchmod(file, 0o600)
            yield written.write
            written.flush()
            os.fsync(file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_out(line: bytes) -> None:
    if sys.stdout is not None:
        sys.stdout.write(line.decode())


def _app_of(target: str | None) -> Operated | None:
    if target is None:
        return None
    from redrive.cli.target import load_app

    return load_app(target)


async def _plan_prune(app: Operated) -> tuple[Retention | None, PrunePlan]:
    settings = settings_of(app)
    retention = None if settings is None else settings.retention
    return retention, await app.operations.prunable()


def _rule_of(app: Operated) -> Redaction:
    from redrive.errors import UsageError

    settings = settings_of(app)
    if settings is None:
        raise UsageError(
            "What is blanked is said by the settings of the app, which a server tells nobody; "
            "export with --redacted where the store is."
        )
    return settings.redaction


def _letters(count: int) -> str:
    return f"{count:,} dead letter{'' if count == 1 else 's'}"
