"""Codec: documents that carry payloads or pieces of them, as a store keeps them.

As they are, or encrypted. What statements ask for stays readable: ids, types, keys, tenants, error
classes, times. Encrypted are an event's payload and headers, of a fault all but its class, code and
rule, and whole: exchanges, addressees, edits with their payloads, and logged requests.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from redrive.errors import SecretError
from redrive.model.delivery import Attempt, Cycle
from redrive.model.edit import Edit
from redrive.model.encryption import Encryption
from redrive.model.event import DEFAULT_GENERATION, SEALED, Event, EventId, Severity
from redrive.model.outcome import Addressees, Exchange, Fault
from redrive.model.request_log import LoggedRequest
from redrive.model.schedule import ScheduleStanding
from redrive.sealing.vault import Vault, digest_by, key_of
from redrive.stores.codec import (
    addressees_from,
    attempts_from,
    body_digest,
    carrying,
    cycles_from,
    edits_from,
    event_from,
    exchange_from,
    fault_from,
    json_text,
    maybe_raw,
    unreadable_event,
)

__all__ = [
    "ADDRESSEES",
    "CYCLES",
    "EDITS",
    "EXCHANGE",
    "FAULT",
    "LOG",
    "PLAIN",
    "READ_ENCRYPTION",
    "REQUESTS",
    "SCHEDULE",
    "Codec",
    "KeptEncryption",
    "Kind",
    "Place",
    "kept_from",
]

T = TypeVar("T")
READ_ENCRYPTION = "SELECT document FROM redrive.encryption"
HIDDEN = "(encrypted)"
"""What stands where a text was, for whoever looks with SQL."""

Place = tuple[int | str, ...]
"""Where a row is in the order that its table is walked through in; empty before the first."""


class KeptEncryption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the store keeps what, and what digests are made by.

    The digests' key is sealed by the key, or plain in base64 once nothing is encrypted any more.
    `stage` and `after` are how far the walk has come in this round, `ends` where each of its
    tables ended when the round began, `left` what somebody had in hand when it came by in the
    table it is in, and `is_again` whether there has to be another round.
    """

    encryption: Encryption
    digests: str
    stage: int = 0
    after: Place = ()
    ends: tuple[Place, ...] = ()
    left: tuple[Place, ...] = ()
    is_again: bool = False


class _SealedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event without its payload and headers, which are sealed; that comes last."""

    id: EventId
    type: str
    published_at: datetime
    occurred_at: datetime
    key: str | None = None
    tenant: str | None = None
    source: str = ""
    idempotency_key: str | None = None
    severity: Severity = Severity.INFO
    priority: int = 0
    generation: str = DEFAULT_GENERATION
    deadline: datetime | None = None
    due: datetime | None = None
    to: tuple[str, ...] = ()
    sealed: str = ""


class _KeptFault(Fault, frozen=True, kw_only=True, omit_defaults=True):
    sealed: str = ""


class _KeptAttempt(Attempt, frozen=True, kw_only=True, omit_defaults=True):
    fault: _KeptFault | None = None


class _KeptCycle(Cycle, frozen=True, kw_only=True, omit_defaults=True):
    fault: _KeptFault
    log: tuple[_KeptAttempt, ...] = ()


_EVENT_FIELDS = tuple(one for one in _SealedEvent.__struct_fields__ if one != "sealed")
_ENDS = ('~"}', b'~"}')
"""How the document of an event ends whose payload is encrypted; others hardly ever do."""
_ONE: dict[type, bytes] = {
    Exchange: b"exchange",
    Addressees: b"addressees",
    ScheduleStanding: b"schedule",
}
_MANY: dict[type, bytes] = {Edit: b"edits", LoggedRequest: b"requests"}
"""What is encrypted as a whole, one or many of it, and under which name."""
_events = msgspec.json.Decoder(_SealedEvent)
_contents = msgspec.json.Decoder(tuple[msgspec.Raw, dict[str, str]])
_faults = msgspec.json.Decoder(_KeptFault)
_attempts = msgspec.json.Decoder(tuple[_KeptAttempt, ...])
_cycles = msgspec.json.Decoder(tuple[_KeptCycle, ...])
_requests = msgspec.json.Decoder(list[LoggedRequest])
_standings = msgspec.json.Decoder(ScheduleStanding)
_kept = msgspec.json.Decoder(KeptEncryption)
_encode = msgspec.json.Encoder().encode


class Codec:
    """Writes and reads what carries payloads; one for each open store.

    What is written is encrypted while the store is known to be; what is read is opened whether it
    is or not, as it was written. Methods that read raise `SecretError` for what cannot be opened,
    unless told not to be strict: then it says so in the place of what is hidden.
    """

    def __init__(self, vault: Vault | None) -> None:
        self._vault = vault
        self._key_id = ""
        self._digests = ""
        self._digest_key: bytes | None = None
        self._is_checked = False

    @property
    def is_sealing(self) -> bool:
        """Whether what is written now is encrypted."""
        return bool(self._key_id)

    def learn(self, document: str | None) -> None:
        """Go by what the store says of how it keeps things."""
        kept = kept_from(document)
        self._key_id = "" if kept is None else kept.encryption.key_id
        if self._vault is not None:
            self._vault.known = self._key_id
        digests = "" if kept is None else kept.digests
        if digests != self._digests:
            self._digests, self._digest_key, self._is_checked = digests, None, False

    def check(self) -> None:
        """Say so in a `SecretError` if this process cannot read and write what is kept."""
        if self._key_id:
            self.vault.check(self._key_id)
            self._digest_by()
        self._is_checked = True

    @property
    def vault(self) -> Vault:
        """What seals and opens."""
        if self._vault is None:
            raise SecretError("What is kept is encrypted, and this store was opened without keys.")
        return self._vault

    # Digests

    def digest(self, event: Event[msgspec.Raw]) -> str:
        """Return what two events have in common exactly when they say the same."""
        return self.keyed(body_digest(event))

    def is_digest_of(self, digest: str, event: Event[msgspec.Raw]) -> bool:
        """Tell whether it is the digest of an event, whenever it was made."""
        if digest.startswith("~"):
            return digest == self.digest(event)
        return digest == body_digest(event)

    def keyed(self, digest: str) -> str:
        """Return a digest as it is kept from now on."""
        is_plain = self._digests and digest and not digest.startswith("~")
        return digest_by(self._digest_by(), digest) if is_plain else digest

    def _digest_by(self) -> bytes:
        if self._digest_key is None:
            if key_of(self._digests) is None:
                self._digest_key = base64.b64decode(self._digests)
            else:
                what = "What tells equal events apart"
                self._digest_key = self.vault.open(self._digests, about=_DIGESTS, what=what)
        return self._digest_key

    def anew(self, document: str | None) -> Codec:
        """Return another that goes by what the store says now."""
        codec = Codec(self._vault)
        codec.learn(document)
        return codec

    def digests_under(self, key_id: str) -> str:
        """Return the key of the digests, sealed by a key, or plain without one; new if none is."""
        if key_id:
            self.vault.check(key_id)
        key = self._digest_by() if self._digests else self.vault.fresh_key()
        if not key_id:
            return base64.b64encode(key).decode()
        return self.vault.seal(key, key_id=key_id, about=_DIGESTS)

    # Writing

    def event_text(self, event: Event[msgspec.Raw]) -> str:
        """Return an event as its document."""
        if event.erased is not None:  # nothing is left to hide, but for what it was like
            erased = replace(event.erased, digest=self.keyed(event.erased.digest))
            return json_text(replace(event, erased=erased))
        if not self._key_id:
            return json_text(event)
        plain = _encode((event.payload, event.headers))
        sealed = self._seal(plain, _about_event(event.id))
        fields = {name: getattr(event, name) for name in _EVENT_FIELDS}
        return json_text(_SealedEvent(**fields, sealed=sealed))

    def payload_text(self, payload: msgspec.Raw | bytes, event_id: str) -> str:
        """Return the payload that a person gave a delivery of an event, as it is kept."""
        if not self._key_id:
            return bytes(payload).decode()
        return self._seal(bytes(payload), _about_payload(event_id))

    def closed(self, value: object) -> object:
        """Return a value as it is to be written as JSON: whatever in it has to be is encrypted."""
        if not self._key_id:
            return value
        are_many = isinstance(value, list | tuple) and bool(value)
        one = value[0] if are_many else value  # type: ignore[index]  # as was just asked
        about = (_MANY if are_many else _ONE).get(type(one))
        if about is not None:
            return self._closed_whole(value, about)
        if are_many and isinstance(one, Attempt | Cycle):
            return [self._closed_parts(part) for part in value]  # type: ignore[attr-defined]  # as above
        return self._closed_parts(value)

    def _closed_parts(self, value: object) -> object:
        match value:
            case Fault():
                return self._closed_fault(value)
            case Attempt(fault=Fault() as fault):
                return replace(value, fault=self._closed_fault(fault))
            case Cycle():
                log = tuple(self._closed_parts(one) for one in value.log)
                return replace(value, fault=self._closed_fault(value.fault), log=log)
        return value

    def _closed_fault(self, fault: Fault) -> _KeptFault:
        return _KeptFault(
            error_class=fault.error_class,
            message=HIDDEN,
            rule=fault.rule,
            code=fault.code,
            group=fault.group,
            sealed=self._closed_whole(fault, b"fault"),
        )

    def _closed_whole(self, value: object, about: bytes) -> str:
        return self._seal(_encode(value), about)

    def _seal(self, plain: bytes, about: bytes) -> str:
        if not self._is_checked:  # by another key of that id nobody else could read it
            self.check()
        return self.vault.seal(plain, key_id=self._key_id, about=about)

    # Keeping otherwise

    def is_current_event(self, document: str) -> bool:
        """Tell whether an event's document is as it is to be kept now."""
        kept = _sealed_event(document)
        return (self._key_id or None) == (kept and key_of(kept.sealed))

    def is_current_payload(self, payload: str) -> bool:
        """Tell whether a payload that a person gave is as it is to be kept now."""
        return (self._key_id or None) == key_of(payload)

    def is_current(self, document: str, kind: Kind) -> bool:
        """Tell whether a document of some kind is as it is to be kept now."""
        return kind.keys(document) <= {self._key_id or None}

    # Reading

    def event(
        self,
        document: str | bytes,
        event_id: str = "",
        event_type: str = "",
        *,
        is_strict: bool = True,
    ) -> Event[msgspec.Raw]:
        """Read an event's document; without being strict, a stand-in says what is missing."""
        kept = _sealed_event(document)
        if kept is None:
            return event_from(document, event_id, event_type)
        if event_id and (kept.id.lower(), kept.type) != (event_id.lower(), event_type):
            return event_from(document, event_id, event_type)
        fields = asdict(kept)
        sealed = fields.pop("sealed")
        opened = b""
        try:
            opened = self._open(sealed, _about_event(kept.id), f"The event {kept.id}")
            payload, headers = _contents.decode(opened)
        except SecretError as error:
            if is_strict:
                raise
            payload, headers = msgspec.Raw(_encode(HIDDEN)), {SEALED: str(error)}
        except (ValueError, RecursionError) as error:
            return unreadable_event(opened, kept.id, kept.type, error)
        return Event(payload=payload, headers=headers, **fields)

    def carrying(
        self, event: Event[msgspec.Raw], edited: str | bytes | None, *, is_strict: bool = True
    ) -> Event[msgspec.Raw]:
        """Return an event as a delivery carries it: with the payload a person gave it, if so."""
        if edited is None:
            return event
        try:
            opened = self._opened_payload(edited, event.id)
        except SecretError as error:
            if is_strict:
                raise
            return replace(event, headers={**event.headers, SEALED: str(error)})
        headers = {name: value for name, value in event.headers.items() if name != SEALED}
        return carrying(replace(event, headers=headers), opened)

    def carried(self, document: str | bytes, edited: str | bytes | None) -> bytes:
        """Return what a delivery carries: the payload of its event, unless it was edited."""
        if edited is None:
            return bytes(self.event(document).payload)
        event_id = self.event(document, is_strict=False).id
        return bytes(maybe_raw(self._opened_payload(edited, event_id)) or b"")

    def payload(
        self, edited: str | bytes | None, event_id: str, *, is_strict: bool = True
    ) -> msgspec.Raw | None:
        """Return the payload that a person gave a delivery, if there is one."""
        if edited is None:
            return None
        try:
            return maybe_raw(self._opened_payload(edited, event_id))
        except SecretError:
            if is_strict:
                raise
            return msgspec.Raw(_encode(HIDDEN))

    def _opened_payload(self, edited: str | bytes, event_id: str) -> str | bytes:
        text = edited if isinstance(edited, str) else edited.decode(errors="replace")
        if key_of(text) is None:
            return edited
        what = f"The payload that the event {event_id} was given"
        return self._open(text, _about_payload(event_id), what)

    def fault(self, document: str | None, *, is_strict: bool = True) -> Fault | None:
        """Read a fault, if there is one."""
        if document is None or '"sealed"' not in document:
            return fault_from(document)
        return self._opened_fault(_faults.decode(document), is_strict=is_strict)

    def attempts(self, document: str | None, *, is_strict: bool = True) -> tuple[Attempt, ...]:
        """Read the log of a cycle."""
        if document is None or '"sealed"' not in document:
            return attempts_from(document)
        return self._opened_log(_attempts.decode(document), is_strict=is_strict)

    def cycles(self, document: str | None, *, is_strict: bool = True) -> tuple[Cycle, ...]:
        """Read the earlier cycles."""
        if document is None or '"sealed"' not in document:
            return cycles_from(document)
        return tuple(
            Cycle(
                **asdict(one)
                | {
                    "fault": self._opened_fault(one.fault, is_strict=is_strict),
                    "log": self._opened_log(one.log, is_strict=is_strict),
                }
            )
            for one in _cycles.decode(document)
        )

    def exchange(self, document: str | None, *, is_strict: bool = True) -> Exchange | None:
        """Read what was exchanged in a try, if it was kept."""
        return self._whole(document, exchange_from, b"exchange", is_strict=is_strict)

    def addressees(self, document: str | None, *, is_strict: bool = True) -> Addressees | None:
        """Read who has answered for good, if that was kept."""
        return self._whole(document, addressees_from, b"addressees", is_strict=is_strict)

    def edits(self, document: str | None, *, is_strict: bool = True) -> tuple[Edit, ...]:
        """Read what a person has changed."""
        return self._whole(document, edits_from, b"edits", is_strict=is_strict)

    def schedule(self, document: str) -> ScheduleStanding:
        """Read how a schedule stands; its payload is declared."""
        return self._whole(document, _read_standing, b"schedule", is_strict=True)

    def requests(self, body: str, *, is_strict: bool = True) -> list[LoggedRequest]:
        """Read requests that were logged; without being strict, none for what cannot be opened."""
        return self._whole(body, _read_requests, b"requests", is_strict=is_strict)

    def _whole(
        self,
        document: str | None,
        read: Callable[[str | None], T],
        about: bytes,
        *,
        is_strict: bool,
    ) -> T:
        # As JSON, or as the text that a database has taken out of it.
        if document is None or not document.startswith(('"~', "~")):
            return read(document)
        try:
            opened = self._open(document.strip('"'), about, f"What is kept as {about.decode()}")
        except SecretError:
            if is_strict:
                raise
            return read(None)
        return read(opened.decode())

    def _opened_fault(self, kept: _KeptFault, *, is_strict: bool) -> Fault:
        if not kept.sealed:
            fields = asdict(kept)
            del fields["sealed"]
            return Fault(**fields)
        try:
            opened = self._open(kept.sealed, b"fault", "A failure")
        except SecretError as error:
            if is_strict:
                raise
            fields = asdict(kept) | {"message": f"{HIDDEN} {error}"}
            del fields["sealed"]
            return Fault(**fields)
        fault = fault_from(opened.decode())
        assert fault is not None  # noqa: S101 - it was sealed from one
        return fault

    def _opened_log(self, kept: Sequence[_KeptAttempt], *, is_strict: bool) -> tuple[Attempt, ...]:
        return tuple(
            Attempt(
                **asdict(one)
                | {"fault": one.fault and self._opened_fault(one.fault, is_strict=is_strict)}
            )
            for one in kept
        )

    def _open(self, text: str, about: bytes, what: str) -> bytes:
        return self.vault.open(text, about=about, what=what)


_DIGESTS = b"digests"


def _about_event(event_id: str) -> bytes:
    return b"event " + event_id.encode()


def _about_payload(event_id: str) -> bytes:
    return b"payload " + event_id.encode()


def _read_standing(document: str | None) -> ScheduleStanding:
    return _standings.decode(document or "")


def _read_requests(document: str | None) -> list[LoggedRequest]:
    return [] if document is None else _requests.decode(document)


def _sealed_event(document: str | bytes) -> _SealedEvent | None:
    """Return an event whose payload is encrypted, or `None` if it is not."""
    if document[-3:] not in _ENDS:
        return None
    try:
        kept = _events.decode(document)
    except ValueError:
        return None
    return kept if kept.sealed else None


def _of_fault(fault: _KeptFault | None) -> set[str | None]:
    return set() if fault is None else {key_of(fault.sealed)}


def _of_log(log: Sequence[_KeptAttempt]) -> set[str | None]:
    return {key for one in log for key in _of_fault(one.fault)}


def _of_cycles(cycles: Sequence[_KeptCycle]) -> set[str | None]:
    return {key for one in cycles for key in _of_fault(one.fault) | _of_log(one.log)}


def _of_whole(document: str) -> set[str | None]:
    return {key_of(document.strip('"'))}


class Kind(NamedTuple):
    """A kind of document: how it is read, and by which keys it is encrypted; `None` is by none."""

    read: Callable[[Codec, str], object]
    keys: Callable[[str], set[str | None]]


FAULT = Kind(Codec.fault, lambda one: _of_fault(_faults.decode(one)))
LOG = Kind(Codec.attempts, lambda one: _of_log(_attempts.decode(one)))
CYCLES = Kind(Codec.cycles, lambda one: _of_cycles(_cycles.decode(one)))
EDITS = Kind(Codec.edits, _of_whole)
EXCHANGE = Kind(Codec.exchange, _of_whole)
ADDRESSEES = Kind(Codec.addressees, _of_whole)
REQUESTS = Kind(Codec.requests, _of_whole)
SCHEDULE = Kind(Codec.schedule, _of_whole)


def kept_from(document: str | None) -> KeptEncryption | None:
    """Read what a store says of how it keeps things; `None` if it was never encrypted."""
    return None if document is None else _kept.decode(document)


PLAIN = Codec(None)
"""Writes everything as it is, for stores that keep nothing at rest."""
