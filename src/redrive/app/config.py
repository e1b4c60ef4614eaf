"""Settings: from code, from the environment and from a file, checked once."""

from __future__ import annotations

import difflib
import logging
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypedDict
from urllib.parse import urlsplit

import msgspec

from redrive.claiming.allowance import LARGEST_SHARE
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.journal.writer import check_sync
from redrive.model.duration import Duration, duration, spell_duration
from redrive.model.event import DEFAULT_GENERATION
from redrive.model.retention import Retention, read_spans
from redrive.model.setting import SettingInForce
from redrive.policies.redact import Redaction, check_names

__all__ = [
    "AppOptions",
    "ReadSettings",
    "Settings",
    "StoreAddress",
    "load_settings",
    "parse_store",
    "read_settings",
    "settings_in_force",
]

_log = logging.getLogger("redrive")
_FILE = "redrive.toml"
_PROJECT = "pyproject.toml"
_TABLE = "tool.redrive"
_GATEWAY = ("services", "rules", "sources", "schedules", "tenants")
_PREFIX = "REDRIVE_"
_NO_SETTINGS = ("REDRIVE_SERVER", "REDRIVE_TOKEN", "REDRIVE_KEYS")
"""What a client and the command line go by, in place of a store, and the keys: all but one of them
are secrets, and no setting is."""
_INJECTED = re.compile(r"(|.*_)(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_(TCP|UDP|SCTP)\w*)")
"""What Kubernetes tells each container about a service named redrive, or redrive-something."""
_HARMLESS = re.compile(r"[\w.+/-]*")
_POSTGRES = ("postgresql", "postgres")
_KINDS = ("sqlite", *_POSTGRES)
_KEPT = ("keep_delivered", "keep_events", "keep_idempotency", "keep_inbox", "keep_audit")
_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How an app works, apart from its destinations.

    What code says wins over the environment (`REDRIVE_LEASE=30s`), and that over `redrive.toml`, or
    the table `[tool.redrive]` of `pyproject.toml`.
    """

    store: str = "sqlite:///redrive.db"
    """Where everything is kept: `sqlite:///relative.db`, `sqlite:////absolute.db`,
    `postgresql://user@host/database`, `memory://`."""
    payload_limit: int = 2**20
    """The largest payload, in bytes of JSON; text such as `"1MiB"` is read too."""
    concurrency: int = 100
    """How many deliveries a worker process carries at once."""
    threads: int = 10
    """How many of them, at most, are handlers that are plain functions, each in a thread."""
    largest_share: float = LARGEST_SHARE
    """Which part of them one destination may be, where there are more destinations than that."""
    lease: timedelta = timedelta(seconds=15)
    """How long a worker may be silent before its deliveries are given to others."""
    grace: timedelta = timedelta(seconds=10)
    """How long handlers may go on: at shutdown, and after their time-out."""
    poll: timedelta = timedelta(seconds=1)
    """How often an idle worker looks for work nobody told it of."""
    environment: str = ""
    """Where the app runs, such as `staging`: destinations may have other limits there."""
    generation: str = DEFAULT_GENERATION
    """The generation of events that are published without one."""
    generations: tuple[str, ...] = ()
    """The generations a worker claims; only `generation` when empty."""
    history: int = 20
    """How many tries of a cycle, and how many earlier cycles, a delivery keeps."""
    keep_delivered: timedelta = timedelta(hours=24)
    """How long deliveries are kept that arrived."""
    keep_events: timedelta = timedelta(days=30)
    """How long events are kept after the last of their deliveries was settled."""
    keep_events_of: tuple[tuple[str, timedelta | None], ...] = ()
    """The same for some types: `{"order.*": "forever", "mail.*": "90d"}`; the first that fits."""
    keep_idempotency: timedelta = timedelta(days=30)
    """How long idempotency keys are remembered, from then on as well."""
    keep_inbox: timedelta = timedelta(days=30)
    """How long it is remembered which effects were applied, from then on as well, but never shorter
    than `keep_idempotency`."""
    keep_audit: timedelta = timedelta(days=400)
    """How long the audit log is kept, and replays that are over."""
    export_folder: str = ""
    """Where dead letters go that a destination has too many of; it needs one to limit them."""
    journal: str = "redrive-journal"
    """The folder of the files that keep, on this machine, what the store could not take."""
    journal_sync: str = "always"
    """When they are flushed to the disk: `always`, with each write; `interval`, once a second;
    `never`, when the system does."""
    journal_size: int = 10 * 10**6
    """How large such a file may get, in bytes; text such as `"10MB"` is read too."""
    keep_journal: timedelta = timedelta(days=30)
    """How long they are kept once the store has it all; until then they never go."""
    keys_file: str = ""
    """The file with the keys that secrets are encrypted with, unless `REDRIVE_KEYS` has them."""
    service_folders: tuple[str, ...] = ("/run/secrets",)
    """Where files of this machine may be that services and sources of the store speak of: secrets,
    certificates, attachments, and files that are written to."""
    redact: tuple[str, ...] = ()
    """Names of headers and fields, such as `iban` or `card_*`, that are hidden from whoever looks,
    beside the usual ones. Commands know those of `redrive.toml` and the environment."""

    def __post_init__(self) -> None:
        for name in ("lease", "grace", "poll", "keep_journal", *_KEPT):
            self._set(name, duration(getattr(self, name), name=name))
        self._set("keep_events_of", read_spans(self.keep_events_of, name="keep_events_of"))
        for name in ("payload_limit", "journal_size"):
            self._set(name, _size(name, getattr(self, name)))
        for name, least in (
            ("concurrency", 1),
            ("threads", 1),
            ("history", 1),
            ("payload_limit", 1),
            ("journal_size", 1_000),
        ):
            self._set(name, _whole_number(name, getattr(self, name), least=least))
        self._set("largest_share", _share("largest_share", self.largest_share))
        if self.lease < timedelta(seconds=1):
            raise ConfigurationError(
                f"lease is {self.lease}; heartbeats need at least 1 s to keep one alive. "
                'The default of "15s" suits most.'
            )
        if not self.poll:
            raise ConfigurationError('poll is 0s, which would never rest; "1s" suits most.')
        if not isinstance(self.environment, str):
            raise ConfigurationError(
                f'environment is {self.environment!r}; it is a name, such as "staging".'
            )
        if not _is_name(self.generation):
            raise ConfigurationError(
                f'generation is {self.generation!r}; it is a name, such as "blue".'
            )
        self._set("generations", _names(self.generations) or (self.generation,))
        self._set("export_folder", _path("export_folder", self.export_folder, "exports"))
        if not isinstance(self.journal, str | Path) or not str(self.journal).strip():
            raise ConfigurationError(
                f'journal is {self.journal!r}; it is the path of a folder, such as "journal".'
            )
        self._set("journal", str(self.journal))
        check_sync(self.journal_sync)
        self._set("keys_file", _path("keys_file", self.keys_file, "redrive-keys"))
        self._set("service_folders", _folders("service_folders", self.service_folders))
        self._set("redact", check_names(self.redact))
        parse_store(self.store)
        self.retention  # noqa: B018 - settings that contradict each other are refused here and now

    @property
    def retention(self) -> Retention:
        """How long things are kept, as the engine has it."""
        return Retention(
            delivered=self.keep_delivered,
            events=self.keep_events,
            idempotency=self.keep_idempotency,
            inbox=self.keep_inbox,
            audit=self.keep_audit,
            events_of=self.keep_events_of,
        )

    @property
    def redaction(self) -> Redaction:
        """What is hidden, as the engine has it."""
        return Redaction(self.redact)

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        if parse_store(self.store).scheme == "postgresql":  # there may be a password in it
            values["store"] = "postgresql://…"
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def _set(self, name: str, value: object) -> None:
        msgspec.structs.force_setattr(self, name, value)


class AppOptions(TypedDict, total=False):
    """The settings code may give; see `Settings` for what each means."""

    payload_limit: int | str
    """The largest payload, in bytes of JSON, or as text such as `"1MiB"`."""
    concurrency: int
    """How many deliveries a worker process carries at once."""
    threads: int
    """How many of them, at most, are handlers that are plain functions."""
    largest_share: float
    """Which part of them one destination may be, where there are many."""
    lease: Duration
    """How long a worker may be silent before its deliveries are given to others."""
    grace: Duration
    """How long handlers may go on: at shutdown, and after their time-out."""
    poll: Duration
    """How often an idle worker looks for work nobody told it of."""
    environment: str
    """Where the app runs, such as `staging`."""
    generation: str
    """The generation of events that are published without one."""
    generations: Sequence[str]
    """The generations a worker claims; only `generation` by default."""
    history: int
    """How many tries of a cycle, and how many earlier cycles, a delivery keeps."""
    keep_delivered: Duration
    """How long deliveries are kept that arrived."""
    keep_events: Duration
    """How long events are kept after the last of their deliveries was settled."""
    keep_events_of: Mapping[str, Duration] | Sequence[str]
    """The same for some types, such as `{"order.*": "forever", "mail.*": "90d"}`."""
    keep_idempotency: Duration
    """How long idempotency keys are remembered, from then on as well."""
    keep_inbox: Duration
    """How long it is remembered which effects were applied."""
    keep_audit: Duration
    """How long the audit log is kept, and replays that are over."""
    export_folder: str | Path
    """Where dead letters go that a destination has too many of."""
    journal: str | Path
    """The folder of the files that keep what the store could not take."""
    journal_sync: Literal["always", "interval", "never"]
    """When they are flushed to the disk."""
    journal_size: int | str
    """How large such a file may get."""
    keep_journal: Duration
    """How long they are kept once the store has it all."""
    keys_file: str | Path
    """The file with the keys that secrets are encrypted with."""
    service_folders: Sequence[str | Path]
    """Where files may be that services and sources of the store speak of."""
    redact: Sequence[str]
    """Names of headers and fields that are hidden, beside the usual ones."""


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings as they were read, and where those come from that somebody has said."""

    settings: Settings
    origins: dict[str, str]


class StoreAddress(msgspec.Struct, frozen=True):
    """A store URL, read: which kind of store it names, and the file of one that is a file."""

    scheme: str
    path: Path | None = None


def load_settings(
    given: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Merge what code gives with the environment and the file, and check the result."""
    return read_settings(given, environment=environment, folder=folder).settings


def read_settings(
    given: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> ReadSettings:
    """Do as `load_settings`, and remember where each comes from."""
    known = Settings.__struct_fields__
    refuse_unknown(given, known, what="setting")
    file, of_file = _from_files(folder or Path.cwd(), known)
    variables = _from_environment(os.environ if environment is None else environment, known)
    coded = {name: value for name, value in given.items() if value is not None}
    return ReadSettings(
        settings=Settings(**{**file, **variables, **coded}),
        origins={
            **dict.fromkeys(file, of_file),
            **{name: f"the variable {_PREFIX}{name.upper()}" for name in variables},
            **dict.fromkeys(coded, "code"),
        },
    )


def settings_in_force(read: ReadSettings, settings: Settings) -> tuple[SettingInForce, ...]:
    """Return all settings as text; `settings` may have been replaced since they were read."""
    usual = Settings()
    return tuple(
        SettingInForce(
            name=name,
            value=_spelled(name, value := getattr(settings, name)),
            default=_spelled(name, getattr(usual, name)),
            origin=read.origins.get(name, "")
            if value == getattr(read.settings, name)
            else "whoever started this process",
        )
        for name in Settings.__struct_fields__
    )


def _spelled(name: str, value: object) -> str:
    if name == "store":
        return _without_password(str(value))
    if isinstance(value, timedelta):
        return spell_duration(value)
    if name == "keep_events_of" and isinstance(value, tuple):
        return ", ".join(
            f"{one}={spell_duration(span) if span else 'forever'}" for one, span in value
        )
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _without_password(url: str) -> str:
    """Return what can be shown of a store's URL: of a server, its name and the database's."""
    if parse_store(url).scheme != "postgresql":
        return url
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "postgresql://…"
    return f"postgresql://{place}{parts.path}"


def parse_store(url: object) -> StoreAddress:
    """Read a store URL.

    >>> parse_store("sqlite:///shop.db").path
    PosixPath('shop.db')
    """
    if not isinstance(url, str):
        raise ConfigurationError(
            f"The store is of type {type(url).__name__}; write a URL as text, such as "
            '"sqlite:///shop.db".'
        )
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "memory":
        return StoreAddress("memory")
    if separator and scheme in _POSTGRES:
        return StoreAddress("postgresql")
    if separator and scheme == "sqlite":
        path = rest.removeprefix("/")
        if path and rest.startswith("/"):
            return StoreAddress("sqlite", Path(path))
        raise ConfigurationError(
            f"The store URL {url!r} names no file; write sqlite:///shop.db (three slashes) for a "
            "file in this folder, sqlite:////var/lib/shop.db (four) for an absolute path."
        )
    if separator and scheme in ("http", "https"):
        raise ConfigurationError(
            "A server was named where the store itself is needed, such as for workers; write the "
            "store's URL, or go through the server with redrive.client or the other commands."
        )
    kind, plus, driver = scheme.partition("+")
    if separator and plus and kind in _KINDS and _HARMLESS.fullmatch(driver):
        raise ConfigurationError(
            f"The store URL begins with {scheme + separator!r}, which names a driver as SQLAlchemy "
            f"does; Redrive brings its own, so leave out +{driver}: {kind}://…"
        )
    # Only as much of it as cannot be a password.
    shown = f" {scheme + separator!r}" if _HARMLESS.fullmatch(scheme) else ""
    raise ConfigurationError(
        f"The store URL{shown} is of no kind Redrive knows; write sqlite:///shop.db for a file, "
        "postgresql://host/database for PostgreSQL, or memory:// for a test."
    )


def _from_files(folder: Path, known: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """Read the settings of a folder, and say of which file: ours, or our table in the project's."""
    own, project = _read_toml(folder / _FILE), _read_project(folder / _PROJECT)
    if own is not None and project is not None:
        raise ConfigurationError(
            f"{folder / _FILE} is there, and {_PROJECT} beside it has a table [{_TABLE}]; keep the "
            "settings in one of them, so that nobody looks at the other in vain."
        )
    table = f"[{_TABLE}] of {_PROJECT}"
    if own is not None:  # what `redrive apply` reads is no setting
        own = {name: value for name, value in own.items() if name not in _GATEWAY}
    for name, read in ((_FILE, own), (table, project)):
        tables = _GATEWAY if name == _FILE else ()
        refuse_unknown(read or {}, (*known, *tables), what=f"setting in {name}:")
    return (own, _FILE) if own else (project or {}, table)


def _read_project(path: Path) -> dict[str, Any] | None:
    """Return our table; a file that does not speak of us is nobody's business here."""
    try:
        if "redrive" not in path.read_text("utf-8"):
            return None
    except (OSError, UnicodeDecodeError):
        return None
    tools = (_read_toml(path) or {}).get("tool", {})
    table = tools.get("redrive") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigurationError(
            f"{path} has {table!r:.100} for {_TABLE}; write a table: [{_TABLE}]"
        )
    return table


def _read_toml(path: Path) -> dict[str, Any] | None:
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read as TOML: {error}.") from error


def _from_environment(environment: Mapping[str, str], known: tuple[str, ...]) -> dict[str, Any]:
    """Read our variables; of those we do not know, refuse what looks like a slip of the pen."""
    found: dict[str, Any] = {}
    strange = []
    for variable, value in environment.items():
        is_ours = variable.startswith(_PREFIX) and not variable.startswith(f"{_PREFIX}TEST_")
        if not is_ours or variable in _NO_SETTINGS:
            continue
        name = variable.removeprefix(_PREFIX)
        if name.lower() in known:
            found[name.lower()] = value
        elif _INJECTED.fullmatch(name) or not difflib.get_close_matches(name.lower(), known):
            strange.append(variable)
        else:
            what = f"setting for the environment variable {variable}:"
            refuse_unknown([name.lower()], known, what=what)
    _warn_once(tuple(sorted(strange)))
    return found


@cache
def _warn_once(strange: tuple[str, ...]) -> None:
    if strange:
        _log.warning(
            "These environment variables name no setting of Redrive and are ignored: %s. "
            "(Kubernetes sets some beside a service named redrive; `enableServiceLinks: false` in "
            "the pod keeps them out.)",
            ", ".join(strange),
        )


def _names(value: object) -> tuple[str, ...]:
    names = value
    if isinstance(value, str):
        names = [one for one in value.split(",") if one.strip()]
    if not isinstance(names, list | tuple) or not all(_is_name(one) for one in names):
        raise ConfigurationError(
            f'generations is {value!r}; it is a list of names, such as ["blue", "green"].'
        )
    return tuple(one.strip() for one in names)


def _path(name: str, value: object, example: str) -> str:
    if not isinstance(value, str | Path):
        raise ConfigurationError(f'{name} is {value!r}; it is a path, such as "{example}".')
    return str(value)


def _folders(name: str, value: object) -> tuple[str, ...]:
    paths = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not all(isinstance(one, str | Path) for one in paths):
        raise ConfigurationError(
            f'{name} is {value!r}; it is a list of folders, such as ["/run/secrets"].'
        )
    return tuple(str(one) for one in paths if str(one).strip())


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _whole_number(name: str, value: object, *, least: int) -> int:
    try:
        number = int(value) if isinstance(value, int | str) and value is not True else None
    except ValueError:
        number = None
    if number is None or number < least:
        raise ConfigurationError(f"{name} is {value!r}; it is a whole number from {least}.")
    return number


def _share(name: str, value: object) -> float:
    try:
        share = float(value) if isinstance(value, float | int | str) else math.nan
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise ConfigurationError(f"{name} is {value!r}; it is a part of 1, such as 0.25.")
    return share


def _size(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    digits = value.strip().rstrip("KMGiBkmgb ")
    unit = value.strip()[len(digits) :].strip().upper() or "B"
    if not digits.isdigit() or unit not in _SIZES:
        raise ConfigurationError(
            f'{name} is {value!r}; write a number of bytes, or text such as "1MiB".'
        )
    return int(digits) * _SIZES[unit]
