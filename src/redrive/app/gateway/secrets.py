"""References to secrets: a document says where one is, and never what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, unquote_plus

from redrive.errors import ConfigurationError
from redrive.policies.redact import Redaction

__all__ = [
    "PEM_FILES",
    "Resolve",
    "files_in",
    "is_reference",
    "placeholder",
    "references_in",
    "refuse_written_headers",
    "refuse_written_payload",
    "refuse_written_url",
    "resolved_url",
]

Resolve = Callable[[str], str]
"""Returns the secret that a reference stands for."""

_KINDS = ("env:", "file:", "secret:")
PEM_FILES = ("certificate", "authority")
"""The keys of a service whose files are read as what they are, and stand for no text."""
_FILES = (*PEM_FILES, "path", "attachment_folder")
_HIDDEN = Redaction()
_TEMPLATE = "{{"
_ANYWHERE = "https://anywhere.example.com"
"""Stands in for an address that only a worker can look up."""


def is_reference(value: object) -> bool:
    """Tell whether a value says where a secret is."""
    return isinstance(value, str) and value.startswith(_KINDS)


def references_in(value: object) -> Iterator[str]:
    """Return the references in a document, also those in the queries of its addresses."""
    if isinstance(value, dict):
        for one in value.values():
            yield from references_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from references_in(one)
    elif isinstance(value, str):
        if is_reference(value):
            yield value
        elif "://" in value:
            yield from (one for _, one in _query(value) if is_reference(one))


def files_in(document: Mapping[str, object]) -> Iterator[str]:
    """Return the files and folders that a service uses, as its document has them."""
    yield from (one for key in _FILES if isinstance(one := document.get(key), str))


def placeholder(reference: str) -> str:
    """Stand in for a secret where a document is only checked."""
    return "whsec_" + "c2VjcmV0" * 4 if reference else ""


def resolved_url(url: object, resolve: Resolve) -> object:
    """Return an address with the secrets that it, or its query, refers to."""
    if not isinstance(url, str):
        return url
    if is_reference(url):
        return _ANYWHERE if resolve is placeholder else resolve(url)
    beginning, mark, query = url.partition("?")
    parts = query.split("&") if mark else []
    for number, part in enumerate(parts):
        name, equals, value = part.partition("=")
        if is_reference(value := unquote_plus(value)):
            parts[number] = f"{name}{equals}{quote(resolve(value), safe='')}"
    return f"{beginning}{mark}{'&'.join(parts)}"


def refuse_written_url(key: str, url: object) -> None:
    """Refuse an address that has a secret in its query, by its name; it is not shown."""
    for name, value in _query(url) if isinstance(url, str) else ():
        if value and _HIDDEN.hides(name) and not is_reference(value) and _TEMPLATE not in value:
            raise ConfigurationError(
                f"{key} has {name}= in its query, and would be shown with it; write where it "
                f"is: {name}=env:NAME, {name}=file:/path or {name}=secret:NAME, or say who we are "
                "by auth."
            )


def refuse_written_headers(key: str, headers: object) -> None:
    """Refuse a header that is a secret by its name, and is written out; it is not shown."""
    for name, value in headers.items() if isinstance(headers, Mapping) else ():
        is_secret = isinstance(name, str) and isinstance(value, str) and _HIDDEN.hides(name)
        if value and is_secret and not is_reference(value) and _TEMPLATE not in value:
            raise ConfigurationError(
                f"{key} has {name} written out, and would be shown with it; have the "
                "service say who we are by auth, or write in its headers where the secret is, such "
                "as env:NAME."
            )


def refuse_written_payload(key: str, payload: object) -> None:
    """Refuse what has a secret by its name in it; it is not shown."""
    if _HIDDEN.document(payload) != payload:
        raise ConfigurationError(
            f"{key} has something that is a secret by its name or its look, such as a password, "
            "and would be shown with it; leave it to who receives the event to look it up."
        )


def _query(url: str) -> Iterator[tuple[str, str]]:
    _, _, query = url.partition("#")[0].partition("?")
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        yield unquote_plus(name), unquote_plus(value)
