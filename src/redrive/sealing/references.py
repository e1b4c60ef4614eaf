"""References: where a secret is, never what it is."""

from __future__ import annotations

import re
from typing import NamedTuple

from redrive.errors import ConfigurationError
from redrive.model.secret import check_secret_name

__all__ = ["Reference", "check_reference", "is_reference"]

_KINDS = ("env", "file", "secret")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "REDRIVE_"


class Reference(NamedTuple):
    """A reference, taken apart: a variable, a file, or a secret that the store keeps."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def is_reference(value: object) -> bool:
    """Tell whether a value says where a secret is."""
    return isinstance(value, str) and value.partition(":")[0] in _KINDS and ":" in value


def check_reference(value: object, *, what: str = "The secret") -> Reference:
    """Return a reference; what is none is not shown, because it may be the secret itself."""
    if not isinstance(value, str) or not is_reference(value):
        raise ConfigurationError(
            f"{what} is written out, or is no text; write where it is: env:NAME for a variable, "
            "file:/path for a file, secret:NAME for what `redrive secret set` keeps."
        )
    kind, _, name = value.partition(":")
    if kind == "env":
        _check_variable(name, what)
    elif kind == "secret":
        check_secret_name(name)
    elif not name or "\x00" in name:
        raise ConfigurationError(f"{what} is file: without a path; write file:/run/secrets/crm.")
    return Reference(kind, name)


def _check_variable(name: str, what: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise ConfigurationError(
            f"{what} is env: without the name of a variable; write env:CRM_TOKEN."
        )
    if name.upper().startswith(_OURS):
        raise ConfigurationError(
            f"{what} is env:{name}, and what begins with {_OURS} is Redrive's own, such as its "
            "keys; nobody is sent that. Give the secret a variable of its own."
        )
