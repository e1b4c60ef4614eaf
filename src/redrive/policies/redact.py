"""Redact: the one rule for what is blanked in everything that people look at.

Secrets are found by the names of headers, of fields of a payload and of parameters of a query, by
how they are written in free text, and by their value where that is known. What is taken back,
such as an export, is none of this module's business: it stays whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from redrive.errors import ConfigurationError, UsageError
from redrive.model.audit import AuditEntry
from redrive.model.delivery import Attempt, Cycle, Delivery, Resolution
from redrive.model.edit import Change, Edit
from redrive.model.event import Event
from redrive.model.gate import Failure, GateFigures, Override, Pause
from redrive.model.letter import Letter
from redrive.model.outcome import Exchange, Fault
from redrive.policies.written import BLANK, without_written
from redrive.store import Query, Replay, TenantFigures

__all__ = ["BLANK", "NAMES", "Redaction", "check_names", "without_half", "without_secrets"]

NAMES = (
    *("*authorization*", "*authenticat*", "auth", "*-auth", "x-auth-*"),
    *("*cookie*", "*session", "*session-id*", "*sessid*", "*csrf*", "*xsrf*"),
    *("*token*", "*jwt*", "*secret*", "*credential*", "bearer", "*-bearer", "otp", "*-otp"),
    *("*signature*", "sig", "*-sig"),
    *("*password*", "*passwd*", "*passphrase*", "*pwd", "pin", "*-pin"),
    *("*api-key*", "*access-key*", "*account-key*", "*auth-key*", "*client-key*"),
    *("*encryption-key*", "*functions-key*", "*master-key*", "*private-key*", "*shared-key*"),
    *("*signing-key*", "*ssh-key*", "*subscription-key*", "x-key"),
)
"""The names that are always hidden, whatever their case, and however their words are joined."""

_MOST_NAMES = 200
_LONGEST_NAME = 100
_NAME = re.compile(r"[\w*.-]+")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINTS = re.compile(r"[\s_.-]+")
_LEAST_OF_A_VALUE = 4
"""Anything shorter stands in half of all texts."""
_SHORT_VALUE = re.compile(r"(?=.*\d)\w{3}")
"""What is this short is looked for only where it stands alone."""
_LONGEST_SPELLING = 12
_LONGEST_PLAIN_PART = 15
_MOST_DIGITS = 2

_PLACES = re.compile(r'"(?:[^"\\]|\\.)*"|\w+')

T = TypeVar("T")


class Redaction(msgspec.Struct, frozen=True):
    """What is hidden: the usual names, and those that an app adds.

    >>> Redaction(("iban",)).document({"iban": "DE02", "total": 3, "apiKey": "k"})
    {'iban': '[redacted]', 'total': 3, 'apiKey': '[redacted]'}
    """

    names: tuple[str, ...] = ()

    def hides(self, name: str) -> bool:
        """Tell whether what has this name is a secret."""
        return _hides(self.names, name)

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return headers with the values of secret ones blanked, and of others what they tell."""
        return {
            name: BLANK if value and self.hides(name) else self.text(value)
            for name, value in headers.items()
        }

    def document(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a decoded payload without its secrets, at any depth."""
        match value:
            case dict():
                return {name: self.field(name, one) for name, one in value.items()}
            case list() | tuple():
                return [self.document(one) for one in value]
            case str():
                return self.text(value)
            case _:
                return value

    def field(self, name: str, value: object) -> object:
        """Return what may be shown of a value that has this name."""
        # Whether there is a password is no secret.
        if value is None or isinstance(value, bool) or value in ("", [], {}):
            return value
        return BLANK if self.hides(name) else self.document(value)

    def payload(self, payload: msgspec.Raw) -> msgspec.Raw:
        """Return a payload without its secrets; byte for byte the same if it has none."""
        try:
            decoded = msgspec.json.decode(payload)
            shown = self.document(decoded)
        except (msgspec.DecodeError, RecursionError):  # nobody can say what is in it
            return msgspec.Raw(msgspec.json.encode(BLANK))
        if shown == decoded and self.text(text := bytes(payload).decode()) == text:
            return payload
        return msgspec.Raw(msgspec.json.encode(shown))

    def body(self, body: str) -> str:
        """Return what went over a wire without its secrets: JSON, or else text."""
        try:
            decoded = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return self.text(body)
        if not isinstance(decoded, dict | list):
            return self.text(body)
        return bytes(self.payload(msgspec.Raw(body.encode()))).decode()

    def text(self, text: str) -> str:
        """Return free text without what is written in it as a secret.

        >>> Redaction().text("GET https://ann:pw@host/?token=abc failed, password='x'")
        'GET https://ann:[redacted]@host/?token=[redacted] failed, password=[redacted]'
        """
        return without_written(text, self.hides, only_usual=not self.names)

    def url(self, url: str) -> str:
        """Return the address of a destination: every value, and long parts of the path, blanked.

        >>> Redaction().url("https://api.example.com/hooks/a1b2c3d4?v=2&TOKEN")
        'https://api.example.com/hooks/[redacted]?v=[redacted]&[redacted]'
        """
        parts = urlsplit(url)
        path = "/".join(one if _is_plain(one) else BLANK for one in parts.path.split("/"))
        named = (one.partition("=") for one in parts.query.split("&") if one)
        query = "&".join(f"{name}={BLANK}" if joint else BLANK for name, joint, _ in named)
        return f"{parts.scheme}://{parts.netloc}{path}{'?' if query else ''}{query}"

    def values(self, headers: Mapping[str, str], *payloads: msgspec.Raw | None) -> tuple[str, ...]:
        """Return the secrets that headers and payloads hold, to be blanked wherever they appear."""
        found = [value for name, value in headers.items() if self.hides(name)]
        for payload in payloads:
            if payload is not None:
                try:
                    found += self._values(msgspec.json.decode(payload))
                except (msgspec.DecodeError, RecursionError):
                    continue
        return tuple(
            one
            for one in dict.fromkeys(found)
            if len(one) >= _LEAST_OF_A_VALUE or _SHORT_VALUE.fullmatch(one)
        )

    def _values(self, value: object, *, is_hidden: bool = False) -> Iterator[str]:
        match value:
            case dict():
                for name, one in value.items():
                    yield from self._values(one, is_hidden=is_hidden or self.hides(name))
            case list():
                for one in value:
                    yield from self._values(one, is_hidden=is_hidden)
            case str() if is_hidden:
                yield value
            case int() | float() if is_hidden and not isinstance(value, bool):
                yield str(value)

    def values_of(self, event: Event[msgspec.Raw]) -> tuple[str, ...]:
        """Return the secrets that an event holds."""
        return self.values(event.headers, event.payload)

    def fault(self, fault: Fault, secrets: Sequence[str] = ()) -> Fault:
        """Return a failure as it may be written down and shown."""
        return msgspec.structs.replace(
            fault,
            message=self._told(fault.message, secrets),
            stack=self._told(fault.stack, secrets),
            title=self._told(fault.title, secrets),
            code=without_secrets(fault.code, secrets),
        )

    def exchange(self, exchange: Exchange, secrets: Sequence[str] = ()) -> Exchange:
        """Return what was sent and answered as it may be shown."""

        def shown(headers: Mapping[str, str]) -> dict[str, str]:
            return {
                name: without_secrets(value, secrets)
                for name, value in self.headers(headers).items()
            }

        return msgspec.structs.replace(
            exchange,
            headers=shown(exchange.headers),
            sent=without_secrets(self.body(exchange.sent), secrets),
            reason=self._told(exchange.reason, secrets),
            answer_headers=shown(exchange.answer_headers),
            body=without_secrets(self.body(exchange.body), secrets),
        )

    def event(self, event: Event[msgspec.Raw]) -> Event[msgspec.Raw]:
        """Return an event as it may be shown."""
        return msgspec.structs.replace(
            event, payload=self.payload(event.payload), headers=self.headers(event.headers)
        )

    def change(self, change: Change) -> Change:
        """Return a difference as it may be shown: where, but not from which secret to which."""
        names = (_decoded(one) for one in _PLACES.findall(change.path))
        is_hidden = any(self.hides(name) for name in names)
        return msgspec.structs.replace(
            change,
            before=self._side(change.before, is_hidden=is_hidden),
            after=self._side(change.after, is_hidden=is_hidden),
        )

    def _side(self, value: str, *, is_hidden: bool) -> str:
        return BLANK if value and is_hidden else self.body(value)

    def delivery(self, delivery: Delivery, secrets: Sequence[str] = ()) -> Delivery:
        """Return a delivery as it may be shown, without what is known to be secret either."""

        def log(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
            return tuple(
                one
                if one.fault is None
                else msgspec.structs.replace(one, fault=self.fault(one.fault, secrets))
                for one in attempts
            )

        def cycle(one: Cycle) -> Cycle:
            fault = self.fault(one.fault, secrets)
            return msgspec.structs.replace(one, fault=fault, log=log(one.log))

        def edit(one: Edit) -> Edit:
            changes = tuple(map(self.change, one.changes))
            return msgspec.structs.replace(one, why=self._told(one.why, secrets), changes=changes)

        def resolution(one: Resolution) -> Resolution:
            return msgspec.structs.replace(one, why=self._told(one.why, secrets))

        return msgspec.structs.replace(
            delivery,
            fault=_maybe(delivery.fault, lambda one: self.fault(one, secrets)),
            log=log(delivery.log),
            cycles=tuple(map(cycle, delivery.cycles)),
            exchange=_maybe(delivery.exchange, lambda one: self.exchange(one, secrets)),
            payload=_maybe(delivery.payload, self.payload),
            edits=tuple(map(edit, delivery.edits)),
            resolution=_maybe(delivery.resolution, resolution),
        )

    def letter(self, letter: Letter) -> Letter:
        """Return a dead letter as it may be shared."""
        secrets = self.secrets_of(letter.event, letter.delivery)
        return msgspec.structs.replace(
            letter, event=self.event(letter.event), delivery=self.delivery(letter.delivery, secrets)
        )

    def secrets_of(self, event: Event[msgspec.Raw], delivery: Delivery) -> tuple[str, ...]:
        """Return the secrets that an event and its delivery hold."""
        return self.values(event.headers, event.payload, delivery.payload)

    def audit(self, entry: AuditEntry) -> AuditEntry:
        """Return an entry of the audit log as it may be shown."""
        return msgspec.structs.replace(
            entry, why=self.text(entry.why), detail=self.text(entry.detail)
        )

    def gate(self, figures: GateFigures) -> GateFigures:
        """Return the gate of a destination as it may be shown."""
        if not (figures.gate.pause or figures.gate.last_failure or figures.override):
            return figures

        def failure(one: Failure) -> Failure:
            return msgspec.structs.replace(one, error=self.text(one.error))

        gate = msgspec.structs.replace(
            figures.gate,
            pause=_maybe(figures.gate.pause, self._pause),
            last_failure=_maybe(figures.gate.last_failure, failure),
        )
        override = _maybe(figures.override, self._override)
        return msgspec.structs.replace(figures, gate=gate, override=override)

    def tenant(self, figures: TenantFigures) -> TenantFigures:
        """Return a tenant as it may be shown."""
        return msgspec.structs.replace(figures, pause=_maybe(figures.pause, self._pause))

    def _override(self, override: Override) -> Override:
        return msgspec.structs.replace(override, why=self.text(override.why))

    def _pause(self, pause: Pause) -> Pause:
        return msgspec.structs.replace(pause, why=self.text(pause.why))

    def replay(self, replay: Replay) -> Replay:
        """Return a replay of many as it may be shown."""

        def query(one: Query) -> Query:
            return msgspec.structs.replace(one, text=_maybe(one.text, self.text))

        return msgspec.structs.replace(
            replay,
            why=self.text(replay.why),
            reason=self.text(replay.reason),
            query=_maybe(replay.query, query),
        )

    def _told(self, text: str, secrets: Sequence[str]) -> str:
        return self.text(without_secrets(text, secrets)) if text else text

    def put_back(self, given: Any, current: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a payload that was made from what is shown, with what is hidden now back in it.

        In a list only an item that was left as it is shown, and where it was, has its secrets put
        back: of others nobody can say which they are.
        """
        return self._put_back(given, current, "")

    def _put_back(self, given: object, current: object, path: str) -> object:
        if given == current or not _has_blank(given):
            return given
        if given == self.document(current):
            return current
        if isinstance(given, dict) and isinstance(current, dict):
            return {name: self._member(name, one, current, path) for name, one in given.items()}
        if isinstance(given, list) and isinstance(current, list):
            return [self._item(place, one, current, path) for place, one in enumerate(given)]
        raise _nothing_hidden(path)

    def _member(self, name: str, given: object, current: Mapping[str, Any], path: str) -> object:
        where = f"{path}.{name}" if path else name
        if given == BLANK and self.hides(name) and name in current:
            return current[name]
        if name in current:
            return self._put_back(given, current[name], where)
        if _has_blank(given):
            raise _nothing_hidden(where)
        return given

    def _item(self, place: int, given: object, current: Sequence[Any], path: str) -> object:
        if not _has_blank(given):
            return given
        if place < len(current):
            if given == current[place]:
                return given
            if given == self.document(current[place]):
                return current[place]
        raise _nothing_hidden(f"{path}[{place}]")


def check_names(names: object) -> tuple[str, ...]:
    """Return names that an app hides beside the usual ones, or say what is wrong with one."""
    given = names.split(",") if isinstance(names, str) else names
    if isinstance(given, list | tuple) and all(isinstance(one, str) for one in given):
        stripped = tuple(one.strip() for one in given if one.strip())
        if len(stripped) <= _MOST_NAMES and all(_is_name(one) for one in stripped):
            return stripped
    raise ConfigurationError(
        f"redact is {names!r:.300}; it is a list of names of headers and fields whose values "
        'nobody should see, such as ["iban", "card_*"]: letters, digits, "_", "-" and "." with "*" '
        f"for any, at least one of them not a star, and at most {_MOST_NAMES} names."
    )


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return text without known secrets, also in another case, or as URLs and JSON spell them.

    >>> without_secrets("no a%2Fb C here", ("A/b c",))
    'no [redacted] here'
    """
    known = tuple(secrets)
    return _spelled(known).sub(BLANK, text) if known and text else text


def without_half(text: str, secrets: Iterable[str]) -> str:
    """Return text that was cut off without the beginning of a secret it may end in."""
    for secret in secrets:
        letters = [re.compile(one, re.IGNORECASE) for one in _letters(secret)]
        for start in range(max(0, len(text) - len(secret) * _LONGEST_SPELLING), len(text)):
            if _ends_within(text, start, letters):
                return text[:start]
    return text


def _ends_within(text: str, start: int, letters: Sequence[re.Pattern[str]]) -> bool:
    place = start
    for count, letter in enumerate(letters):
        if place == len(text):
            return count >= _LEAST_OF_A_VALUE
        found = letter.match(text, place)
        if found is None:  # half of a letter's spelling is cut off too
            return count >= _LEAST_OF_A_VALUE and text[place:].startswith(("%", "\\", "&"))
        place = found.end()
    return False


@lru_cache(maxsize=1_000)
def _spelled(secrets: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(secrets, key=lambda one: (-len(one), one))
    return re.compile("|".join(map(_spelling, longest_first)), re.IGNORECASE)


def _spelling(secret: str) -> str:
    spelled = "".join(_letters(secret))
    return spelled if len(secret) >= _LEAST_OF_A_VALUE else rf"(?<!\w){spelled}(?!\w)"


def _letters(secret: str) -> Iterator[str]:
    """Return for each letter of a secret what it may be spelled as."""
    for letter in secret:
        encoded = "".join(f"%(?:25)*{byte:02x}" for byte in letter.encode("utf-8", "replace"))
        numbers = (f"&#{ord(letter)};", f"&#x0*{ord(letter):x};")
        ways = [rf"\\?{re.escape(letter)}", encoded, *numbers]
        if ord(letter) < 2**16:
            ways.append(rf"\\u{ord(letter):04x}")
        ways += _OTHER_WAYS.get(letter, ())
        yield f"(?:{'|'.join(ways)})"


_OTHER_WAYS = {
    " ": (r"\+",),
    "+": (" ",),
    "&": ("&amp;",),
    "<": ("&lt;",),
    ">": ("&gt;",),
    '"': ("&quot;",),
    "'": ("&apos;",),
}


@lru_cache(maxsize=10_000)
def _hides(more: tuple[str, ...], name: str) -> bool:
    words = _words(name)
    joined = words.replace("-", "")
    return any(
        fnmatchcase(words, pattern) or fnmatchcase(joined, pattern.replace("-", ""))
        for pattern in (*NAMES, *map(_words, more))
        if "-" not in pattern or _is_wordy(pattern) or fnmatchcase(words, pattern)
    )


def _is_wordy(pattern: str) -> bool:
    """Whether its words may also be joined: `apikey` is as good as `api-key`, `oauth` no `auth`."""
    return "-" in pattern.strip("*").strip("-") and not pattern.startswith("*-")


def _words(name: str) -> str:
    """Return a name in lower case with `-` between its words, whichever way they are joined."""
    return _JOINTS.sub("-", _HUMPS.sub("-", name)).lower()


def _is_name(name: str) -> bool:
    is_named = len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None
    return is_named and bool(name.strip("*._-"))


def _is_plain(part: str) -> bool:
    digits = sum(one.isdigit() for one in part)
    return len(part) <= _LONGEST_PLAIN_PART and digits <= _MOST_DIGITS


def _decoded(place: str) -> str:
    return str(msgspec.json.decode(place)) if place.startswith('"') else place


def _has_blank(value: object) -> bool:
    match value:
        case str():
            return BLANK in value
        case dict():
            return any(_has_blank(one) for one in value.values())
        case list():
            return any(_has_blank(one) for one in value)
        case _:
            return False


def _nothing_hidden(path: str) -> UsageError:
    return UsageError(
        f"The payload has {BLANK} at {path or '$'}, and it cannot be told which value that stands "
        "for; write the value itself. `redrive dlq show --reveal` shows what is there now."
    )


def _maybe(value: T | None, change: Any) -> T | None:  # noqa: ANN401 - as its caller has it
    return None if value is None else change(value)
