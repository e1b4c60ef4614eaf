"""Header names and values: which ones may be sent, and which are ours to set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redrive.errors import ConfigurationError

__all__ = ["check_header_name", "check_header_names", "check_headers", "is_header_value"]

_LETTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
)
_OURS = (
    *("webhook-id", "webhook-signature", "webhook-timestamp"),
    *("redrive-attempt", "redrive-replay"),
    *("accept-encoding", "connection", "content-encoding", "content-length", "expect", "host"),
    *("keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
)


def check_header_name(name: object) -> str:
    """Return the name in lower case, or say what is wrong with it."""
    if not isinstance(name, str) or not name or not _LETTERS.issuperset(name):
        raise ConfigurationError(
            f"The header name is {name!r}; it is letters, digits and '-', such as \"x-shop\"."
        )
    lower = name.lower()
    if lower in _OURS:
        raise ConfigurationError(
            f"The header {name!r} is set by Redrive for every request, so it cannot be declared."
        )
    return lower


def check_header_names(names: object) -> tuple[str, ...]:
    """Return the names in lower case, or say what is wrong with one."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ConfigurationError(
            f'forward_headers is {names!r}; it is a tuple of names, such as ("traceparent",).'
        )
    return tuple(check_header_name(name) for name in names)


def check_headers(headers: object) -> dict[str, str]:
    """Return the headers with their names in lower case, or say what is wrong with one.

    A message names the header and never its value, which may be a secret.
    """
    if not isinstance(headers, Mapping):
        raise ConfigurationError(
            f"headers is a {type(headers).__name__}; "
            'it maps names to values, such as {"x-shop": "berlin"}.'
        )
    checked: dict[str, str] = {}
    for name, value in headers.items():
        lower = check_header_name(name)
        if not isinstance(value, str) or not is_header_value(value):
            raise ConfigurationError(
                f"The value of the header {name!r} is not text, or has a line break or another "
                "character that no header may hold; write printable ASCII."
            )
        if lower in checked:
            raise ConfigurationError(f"The header {name!r} is there twice; leave one out.")
        checked[lower] = value
    return checked


def is_header_value(value: str) -> bool:
    """Tell whether it can be sent as it is: no line break, nothing that is not ASCII."""
    return value.isascii() and value.isprintable()
