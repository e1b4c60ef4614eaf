"""Sources: documents about who sends us webhooks, every key checked, and events made by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from string import ascii_letters, digits
from typing import Any, get_args

import msgspec

from redrive.errors import ConfigurationError, PayloadError, RedriveError, refuse_unknown
from redrive.inbound.message import Message
from redrive.inbound.signatures import (
    Encoding,
    GitHubSignature,
    HmacSignature,
    NoSignature,
    Signature,
    StandardSignature,
    StripeSignature,
)
from redrive.model.checks import check_text
from redrive.model.destination import check_destination_name
from redrive.model.duration import duration
from redrive.model.event import EventAttributes
from redrive.sealing.references import is_reference
from redrive.templates import Template, compile_template
from redrive.transports.signing import SigningKey

__all__ = ["NAMES", "NOTE", "Resolve", "Source", "read_source"]

Resolve = Callable[[str], str]
"""Returns the secret that a reference stands for."""

NAMES = ("headers", "payload", "source")
"""What the templates of a source may use."""

NOTE = "redrive-inbound-note"
"""The header of an event that says what of it could not be named as its source asks."""

_COMMON = (
    *("kind", "enabled", "description", "event", "key", "tenant", "headers"),
    *("unique_for", "body"),
)
_HMAC = (
    *("signature_header", "algorithm", "encoding", "prefix", "signed"),
    *("timestamp_header", "id_header"),
)
_KEYS: Mapping[str, tuple[str, ...]] = {
    "standard_webhooks": ("secrets", "tolerance"),
    "github": ("secrets",),
    "stripe": ("secrets", "tolerance"),
    "hmac": ("secrets", "tolerance", *_HMAC),
    "open": ("id_header",),
}
_TEMPLATES = ("event", "key", "tenant")
_BODIES = ("json", "text")
_ALGORITHMS = ("sha256", "sha512", "sha1")
_TOLERANCE = "5m"
_TYPE_LETTERS = frozenset(f"{ascii_letters}{digits}_-.")
_LONGEST_TYPE = 200
_LONGEST_ID = 200


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A source as its document says: whom it believes, and what becomes of a message."""

    name: str
    kind: str
    signature: Signature
    is_enabled: bool
    id_header: str
    headers: tuple[str, ...]
    unique_for: timedelta | None
    is_text: bool
    templates: Mapping[str, Template]

    def event(self, message: Message) -> tuple[str, object, EventAttributes]:
        """Return type, payload and attributes of the event that a genuine message is.

        What a template of the document cannot name is left out, and a header of the event says so:
        nobody would send the message again. `PayloadError` if it cannot be read.
        """
        payload = self._read(message.body)
        context = {"headers": message.headers, "payload": payload, "source": self.name}
        notes: list[str] = []
        said: dict[str, str] = {}
        for name, template in self.templates.items():
            try:
                said[name] = check_text(name, template.render(context))
            except RedriveError as error:
                notes.append(f"{name}: {error}")
        kept = {name: message.headers[name] for name in self.headers if name in message.headers}
        attributes = EventAttributes(
            source=f"inbound:{self.name}",
            headers={**kept, NOTE: "; ".join(notes)[:1_000]} if notes else kept,
            key=said.get("key") or None,
            tenant=said.get("tenant") or None,
            idempotency_key=self._id(message, payload) or None,
            unique_for=self.unique_for,
        )
        event_type = _as_type(said.get("event") or f"{self.name}.{self._type(message, payload)}")
        raw = payload if self.is_text else msgspec.Raw(message.body)
        return event_type, raw, attributes

    def _read(self, body: bytes) -> object:
        try:
            return body.decode() if self.is_text else msgspec.json.decode(body)
        except (ValueError, RecursionError):
            kind = "text" if self.is_text else "JSON; choose application/json where it is set up"
            raise PayloadError(f"The body is no {kind}.") from None

    def _id(self, message: Message, payload: object) -> str:
        """Return what the sender calls the message, however often it sends it."""
        said = message.header(self.id_header) if self.id_header else _text(payload, "id")
        return said if len(said) <= _LONGEST_ID and "\x00" not in said else ""

    def _type(self, message: Message, payload: object) -> str:
        match self.kind:
            case "github":
                said = message.header("x-github-event")
            case "standard_webhooks" | "stripe":
                said = _text(payload, "type")
            case _:
                said = ""
        return said or "received"


def read_source(name: str, document: Mapping[str, object], *, resolve: Resolve) -> Source:
    """Read a document; a mistake in it names the source and the key."""
    try:
        return _read(name, dict(document), resolve)
    except RedriveError as error:
        raise ConfigurationError(f"The source {name!r}: {error}") from error


def _read(name: str, given: dict[str, Any], resolve: Resolve) -> Source:
    _check_name(name)
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ConfigurationError(
            f"kind is {kind!r}; it is how the sender signs: one of {', '.join(_KEYS)}. What nobody "
            'signs is let in only by the name of it: kind = "open".'
        )
    refuse_unknown(given, (*_COMMON, *_KEYS[kind]), what=f"key of a source of the kind {kind}:")
    enabled = given.get("enabled", True)
    if not isinstance(enabled, bool):
        raise ConfigurationError(f"enabled is {enabled!r}; write true or false.")
    unique_for = given.get("unique_for")
    return Source(
        name=name,
        kind=kind,
        signature=_signature(kind, given, resolve),
        is_enabled=enabled,
        id_header=_id_header(kind, given),
        headers=_headers(given.get("headers", ())),
        unique_for=None if unique_for is None else duration(unique_for, name="unique_for"),
        is_text=_one_of("body", given.get("body", "json"), _BODIES) == "text",
        templates={
            one: compile_template(_template(one, given[one]), form="text", names=NAMES)
            for one in _TEMPLATES
            if one in given
        },
    )


def _check_name(name: str) -> None:
    try:
        check_destination_name(name)
    except ConfigurationError:
        raise ConfigurationError(
            "its name is no part of an address; use letters, digits, '.', '_' and '-', at most "
            '100 characters, such as "github".'
        ) from None


def _signature(kind: str, given: Mapping[str, Any], resolve: Resolve) -> Signature:
    if kind == "open":
        return NoSignature()
    secrets = _secrets(given.get("secrets"), resolve)
    if kind == "github":
        return GitHubSignature(secrets)
    tolerance = duration(given.get("tolerance", _TOLERANCE), name="tolerance")
    if kind == "standard_webhooks":
        return StandardSignature(tuple(SigningKey(one) for one in secrets), tolerance)
    if kind == "stripe":
        return StripeSignature(secrets, tolerance)
    if "tolerance" in given and "timestamp_header" not in given:
        raise ConfigurationError(
            "tolerance is given, and nothing says when a message was signed; write "
            "timestamp_header as well, or leave it out."
        )
    return _hmac(given, secrets, tolerance)


def _hmac(given: Mapping[str, Any], secrets: tuple[str, ...], tolerance: timedelta) -> Signature:
    header = given.get("signature_header")
    if header is None:
        raise ConfigurationError(
            "signature_header is missing; write where the signature stands, such as "
            'signature_header = "x-shop-signature".'
        )
    at, named = given.get("timestamp_header"), given.get("id_header")
    signed = given.get("signed", "{timestamp}.{body}" if at else "{body}")
    if not isinstance(signed, str) or signed.count("{body}") != 1:
        raise ConfigurationError(
            f"signed is {signed!r}; it is what the secret signs, with {{body}} in it once, such as "
            '"v0:{timestamp}:{body}".'
        )
    if ("{timestamp}" in signed) is not bool(at):
        raise ConfigurationError(
            "timestamp_header and {timestamp} in signed go together: a time that nobody signs "
            "could be changed, and one that is signed has to stand somewhere."
        )
    if "{id}" in signed and not named:
        raise ConfigurationError("signed has an {id}; write id_header, which says where it stands.")
    prefix = given.get("prefix", "")
    if not isinstance(prefix, str):
        raise ConfigurationError(f'prefix is {prefix!r}; it is text, such as "sha256=".')
    return HmacSignature(
        secrets=secrets,
        header=_header("signature_header", header),
        algorithm=_one_of("algorithm", given.get("algorithm", "sha256"), _ALGORITHMS),
        encoding=_one_of("encoding", given.get("encoding", "hex"), get_args(Encoding)),  # type: ignore[arg-type]
        prefix=prefix,
        signed=signed,
        timestamp_header=_header("timestamp_header", at) if at else "",
        id_header=_header("id_header", named) if named else "",
        tolerance=tolerance,
    )


def _secrets(said: object, resolve: Resolve) -> tuple[str, ...]:
    references = [said] if isinstance(said, str) else said
    if not isinstance(references, list | tuple) or not references:
        raise ConfigurationError(
            'secrets is missing; write where the secret is, such as secrets = "env:GITHUB_SECRET", '
            "and a list of two while it is changed."
        )
    for one in references:
        if not is_reference(one):
            raise ConfigurationError(
                "secrets is not said by reference, and a document is no place for a secret; write "
                "where it is: env:NAME for a variable of the server, file:/path for a file, or "
                "secret:NAME for one that `redrive secret set` has stored."
            )
    return tuple(resolve(one) for one in references)


def _id_header(kind: str, given: Mapping[str, Any]) -> str:
    own = {"standard_webhooks": "webhook-id", "github": "x-github-delivery"}.get(kind)
    if own is not None:
        return own
    named = given.get("id_header")
    return "" if named is None else _header("id_header", named)


def _header(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.strip() or " " in value:
        raise ConfigurationError(f'{name} is {value!r}; it is the name of a header, "x-shop-id".')
    return value.lower()


def _headers(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigurationError(
            f"headers is {value!r}; it is a list of those that the event keeps, such as "
            '["x-github-event"].'
        )
    return tuple(_header("headers", one) for one in value)


def _template(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(
            f'{name} is {value!r}; it is text, such as "{{{{ payload.customer }}}}".'
        )
    return value


def _one_of(name: str, value: object, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ConfigurationError(f"{name} is {value!r}; it is one of {', '.join(known)}.")
    return value


def _text(payload: object, name: str) -> str:
    value = payload.get(name) if isinstance(payload, dict) else None
    return value if isinstance(value, str) else ""


def _as_type(said: str) -> str:
    """Return the type that is nearest to what a sender calls it."""
    letters = "".join(one if one in _TYPE_LETTERS else "_" for one in said)
    return ".".join(word for word in letters.split(".") if word)[:_LONGEST_TYPE].rstrip(".")
