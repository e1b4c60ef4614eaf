"""Options that several ways have, each read into what it means or refused with advice."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from importlib.util import find_spec
from ipaddress import ip_network
from typing import TypeVar

from redrive.errors import ConfigurationError
from redrive.model.duration import duration
from redrive.transports.ssrf import EVERYWHERE, Network

__all__ = [
    "need",
    "read_choice",
    "read_connect_timeout",
    "read_count",
    "read_name",
    "read_networks",
    "read_tls",
    "without_libraries",
]

T = TypeVar("T", bound=str)
_needs_libraries: ContextVar[bool] = ContextVar("needs_libraries", default=True)


@contextmanager
def without_libraries() -> Iterator[None]:
    """Let ways be declared whose libraries are not installed: to check them, not to send."""
    token = _needs_libraries.set(False)
    try:
        yield
    finally:
        _needs_libraries.reset(token)


def need(what: str, *, extra: str, modules: Collection[str]) -> None:
    """Refuse a way whose library is not installed, and say how to install it."""
    missing = [one for one in modules if not _is_installed(one)]
    if missing and _needs_libraries.get():
        raise ConfigurationError(
            f"{what} need {' and '.join(missing)}, which is not installed; "
            f"install it with: pip install 'redrive[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it is part of
        return False


def read_name(name: str, value: object, *, example: str) -> str:
    """Return a name that is text, printable and not empty."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ConfigurationError(f'{name} is {value!r}; it is printable text, such as "{example}".')
    return value


def read_networks(allow_private: object, allow_networks: object) -> tuple[Network, ...]:
    """Return the networks that may be reached although they are not public."""
    if not isinstance(allow_private, bool):
        raise ConfigurationError(
            f"allow_private is {allow_private!r}; it is True or False. To allow some networks "
            'only, write allow_networks=("10.1.0.0/16",).'
        )
    if isinstance(allow_networks, str) or not isinstance(allow_networks, Sequence):
        raise ConfigurationError(
            f'allow_networks is {allow_networks!r}; it is a tuple, such as ("10.1.0.0/16",).'
        )
    try:
        networks = tuple(ip_network(one) for one in allow_networks)
    except ValueError as error:
        raise ConfigurationError(
            f"allow_networks has something that is no network: {error}; "
            'write one as "10.1.0.0/16", and a single address as "10.1.2.3".'
        ) from None
    return EVERYWHERE if allow_private else networks


def read_tls(context: object) -> ssl.SSLContext | None:
    """Return how TLS is spoken, or `None` for the trust of the system."""
    if context is not None and not isinstance(context, ssl.SSLContext):
        raise ConfigurationError(
            f"tls is {context!r}; pass an ssl.SSLContext, "
            'such as ssl.create_default_context(cafile="authority.pem").'
        )
    return context


def read_connect_timeout(value: object) -> timedelta:
    """Return how long to wait for a connection."""
    wait = duration(value, name="connect_timeout")
    if not wait:
        raise ConfigurationError(
            'connect_timeout is 0s, and nothing connects in no time; try "5s".'
        )
    return wait


def read_count(name: str, value: object, *, least: int = 1) -> int:
    """Return a whole number that is large enough."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{name} is {value!r}; it is a whole number from {least}.")
    return value


def read_choice(name: str, value: T, choices: Sequence[T]) -> T:
    """Return one of the choices."""
    if value not in choices:
        raise ConfigurationError(f"{name} is {value!r}; it is one of {', '.join(choices)}.")
    return value
