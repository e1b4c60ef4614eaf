"""What a mail says: fields made by templates, or the payload itself, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import urlsplit

import msgspec

from redrive.errors import ConfigurationError, PayloadError, refuse_unknown
from redrive.model.event import Event
from redrive.transports.mail.addresses import Address, read_address, read_addresses
from redrive.transports.options import need, read_count

if TYPE_CHECKING:
    from redrive.templates import Template

__all__ = ["Attachment", "Mail", "MailOptions", "Recipe", "read_mail", "read_recipe"]

_TEMPLATES = (
    "to",
    "cc",
    "bcc",
    "subject",
    "text",
    "html",
    "reply_to",
    "unsubscribe",
    "attachments",
)
_FIELDS = (*_TEMPLATES, "headers")
_MOST_RECIPIENTS = 100
_OURS = (
    *("from", "sender", "to", "cc", "bcc", "subject", "date", "message-id", "reply-to"),
    *("received", "return-path", "list-unsubscribe", "list-unsubscribe-post", "mime-version"),
)
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class MailOptions(TypedDict, total=False):
    """What mail is made of; texts are templates."""

    sender: str
    """Whom the mail is from, such as `"Shop <shop@example.com>"`."""
    to: str | Sequence[str]
    """Whom it is for."""
    cc: str | Sequence[str]
    """Who gets a copy."""
    bcc: str | Sequence[str]
    """Who gets a copy that nobody else hears of."""
    subject: str
    """Its subject."""
    text: str
    """Its text."""
    html: str
    """The same as HTML."""
    reply_to: str
    """Whom an answer is for."""
    unsubscribe: str
    """Where one no longer wants such mail: a URL or an address."""
    attachments: Sequence[Mapping[str, str]]
    """Files of `attachment_folder`, each with its path, and a name and type if you like."""
    attachment_folder: str | None
    """Where attachments may come from."""
    attachment_limit: int
    """How many bytes all attachments of a mail may have."""


class Attachment(msgspec.Struct, frozen=True):
    """A file that is read when the mail is sent."""

    path: Path
    name: str
    type: str


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """One mail, checked; nothing in it can end a line of its header."""

    sender: Address
    to: tuple[Address, ...]
    cc: tuple[Address, ...]
    bcc: tuple[Address, ...]
    subject: str
    text: str | None
    html: str | None
    reply_to: tuple[Address, ...]
    unsubscribe: str
    attachments: tuple[Attachment, ...]
    headers: dict[str, str]

    @property
    def recipients(self) -> tuple[str, ...]:
        """Everybody it is for, each once."""
        return tuple(
            {one.address.lower(): one.address for one in (*self.to, *self.cc, *self.bcc)}.values()
        )


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How mails are made of events."""

    sender: Address
    template: Template | None
    folder: Path | None
    limit: int


def read_recipe(options: Mapping[str, Any]) -> Recipe:
    """Read the options that say what mail is made of."""
    if "sender" not in options:
        raise ConfigurationError('Mail needs a sender, such as sender="Shop <shop@example.com>".')
    try:
        sender = read_address(options["sender"], what="sender")
    except PayloadError as error:
        raise ConfigurationError(str(error)) from None
    given = {name: options[name] for name in _TEMPLATES if options.get(name) is not None}
    template = None
    if given:
        need("Templates of mail", extra="gateway", modules=("jinja2",))
        from redrive.templates import compile_template  # noqa: PLC0415 - the extra

        template = compile_template(msgspec.json.decode(msgspec.json.encode(given)))
    folder = options.get("attachment_folder")
    return Recipe(
        sender=sender,
        template=template,
        folder=None if folder is None else Path(folder).resolve(),
        limit=read_count("attachment_limit", options.get("attachment_limit", 10 * 2**20)),
    )


def read_mail(recipe: Recipe, event: Event[msgspec.Raw]) -> Mail:
    """Return the mail that an event makes, or raise `PayloadError` with what is wrong.

    Without templates the payload is the mail. With them nothing else of it is read: whoever
    publishes does not say who gets a copy.
    """
    if recipe.template is None:
        fields = msgspec.json.decode(event.payload)
        if not isinstance(fields, dict):
            raise PayloadError("The payload is no object, so there is no mail in it.")
        try:
            refuse_unknown(fields, _FIELDS, what="field of a mail")
        except ConfigurationError as error:
            raise PayloadError(str(error)) from None
    else:
        from redrive.templates import event_names  # noqa: PLC0415 - the extra

        fields = recipe.template.render(event_names(event))
    return _mail(recipe, fields)


def _mail(recipe: Recipe, fields: Mapping[str, Any]) -> Mail:
    mail = Mail(
        sender=recipe.sender,
        to=read_addresses(fields.get("to"), what="recipient"),
        cc=read_addresses(fields.get("cc"), what="recipient"),
        bcc=read_addresses(fields.get("bcc"), what="recipient"),
        subject=_line("subject", fields.get("subject", "")),
        text=_body("text", fields.get("text")),
        html=_body("html", fields.get("html")),
        reply_to=read_addresses(fields.get("reply_to"), what="address to reply to"),
        unsubscribe=_unsubscribe(fields.get("unsubscribe", "")),
        attachments=_attachments(recipe, fields.get("attachments", [])),
        headers=_headers(fields.get("headers", {})),
    )
    if not mail.recipients:
        raise PayloadError("The mail is for nobody; say whom with to, cc or bcc.")
    if len(mail.recipients) > _MOST_RECIPIENTS:
        raise PayloadError(
            f"The mail is for {len(mail.recipients)} recipients, more than the "
            f"{_MOST_RECIPIENTS} that a server takes at once; publish several events."
        )
    if mail.text is None and mail.html is None:
        raise PayloadError("The mail says nothing; it needs text or html.")
    return mail


def _line(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise PayloadError(
            f"The {name} is no text, or has a line break or another character that no header may "
            "hold."
        )
    return value


def _body(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise PayloadError(f"The {name} of the mail is {type(value).__name__}; it is text.")
    return value


def _unsubscribe(value: object) -> str:
    where = _line("unsubscribe", value)
    if not where:
        return ""
    if "@" in where and ":" not in where:
        return f"mailto:{read_address(where, what='address to unsubscribe at').address}"
    parts = urlsplit(where)
    if parts.scheme not in {"https", "http", "mailto"} or set(where) & set("<> ,"):
        raise PayloadError(
            "unsubscribe is neither an address nor a URL that begins with https:// or mailto:."
        )
    return where


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise PayloadError("headers is no object; it maps names to values.")
    for name, text in value.items():
        _line(f"header {name!r}", text)
        lower = str(name).lower()
        if not name or not _LETTERS.issuperset(name):
            raise PayloadError(f"The header {name!r} has a name that no header may have.")
        if lower in _OURS or lower.startswith("content-"):
            raise PayloadError(f"The header {name!r} is set by Redrive; leave it out.")
    return dict(value)


def _attachments(recipe: Recipe, value: object) -> tuple[Attachment, ...]:
    if not isinstance(value, list):
        raise PayloadError('attachments is no list; each has a path, such as [{"path": "a.pdf"}].')
    found = []
    for one in value:
        match one:
            case {"path": str(path), **rest} if set(rest) <= {"name", "type"}:
                name = _line("name of an attachment", rest.get("name", Path(path).name))
                kind = _line("type of an attachment", rest.get("type", "application/octet-stream"))
                if kind.count("/") != 1:
                    raise PayloadError(
                        f"The type of an attachment is {kind!r}, not like text/plain."
                    )
                found.append(Attachment(_within(recipe.folder, path), name, kind))
            case _:
                raise PayloadError("An attachment is an object with a path, and a name and a type.")
    return tuple(found)


def _within(folder: Path | None, path: str) -> Path:
    """Return the file, if it is in the folder, wherever links lead."""
    if folder is None:
        raise PayloadError(
            "The mail has an attachment, and the destination has no attachment_folder that it "
            "may come from."
        )
    whole = (folder / path).resolve()
    if "\x00" in path or not whole.is_relative_to(folder):
        raise PayloadError("An attachment is outside of the folder that attachments come from.")
    return whole
