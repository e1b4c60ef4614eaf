"""Addresses of mail: which ones a server could take, whoever wrote them."""

from __future__ import annotations

import re

import msgspec

from redrive.errors import PayloadError

__all__ = ["Address", "read_address", "read_addresses"]

_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_NAMED = re.compile(r"([^<>]*)<([^<>]*)>")
_LONGEST_LOCAL = 64
_LONGEST = 254


class Address(msgspec.Struct, frozen=True):
    """One mailbox: its address as a server is told it, and a name for people."""

    address: str
    name: str = ""

    @property
    def domain(self) -> str:
        """What follows the `@`."""
        return self.address.rpartition("@")[2]


def read_address(value: object, *, what: str = "recipient") -> Address:
    """Read `ann@example.com`, `Ann <ann@example.com>`, or an object with `address` and `name`.

    >>> read_address("Ann <ann@bücher.example>").address
    'ann@xn--bcher-kva.example'
    """
    name, written = "", value
    match value:
        case {"address": written, **rest} if set(rest) <= {"name"}:
            name = str(rest.get("name") or "")
        case str() if found := _NAMED.fullmatch(value.strip()):
            name, written = found.group(1).strip().strip('"'), found.group(2)
    if not isinstance(written, str):
        raise PayloadError(
            f'A {what} is {value!r}; it is an address such as "ann@example.com", or an object with '
            "address and name."
        )
    if not name.isprintable():
        raise PayloadError(
            f"The name of a {what} has a line break or another character that no header may hold."
        )
    return Address(_checked(written.strip(" "), what), name)


def read_addresses(value: object, *, what: str) -> tuple[Address, ...]:
    """Read one address or a list of them, each once."""
    given = value if isinstance(value, list | tuple) else [] if value is None else [value]
    found = [read_address(one, what=what) for one in given]
    return tuple({one.address.lower(): one for one in reversed(found)}.values())[::-1]


def _checked(written: str, what: str) -> str:
    local, at, domain = written.rpartition("@")
    if not at or len(local) > _LONGEST_LOCAL or not _LOCAL.fullmatch(local):
        raise _refusal(written, what)
    try:
        plain = domain.encode("idna").decode("ascii") if not domain.isascii() else domain
    except UnicodeError:
        raise _refusal(written, what) from None
    labels = plain.split(".")
    if len(f"{local}@{plain}") > _LONGEST or not all(_LABEL.fullmatch(one) for one in labels):
        raise _refusal(written, what)
    return f"{local}@{plain}"


def _refusal(written: str, what: str) -> PayloadError:
    shown = written if written.isprintable() else ascii(written)
    return PayloadError(
        f"A {what} is {shown[:100]!r}, which is no address that a server could take; one is "
        'letters, an "@" and a domain, such as "ann@example.com".'
    )
