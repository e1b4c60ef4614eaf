"""Who we are to an HTTP destination: a bearer token, a password or an API key, never printed."""

from __future__ import annotations

import base64

from redrive.errors import ConfigurationError
from redrive.transports.http.headers import check_header_name, is_header_value

__all__ = ["ApiKey", "Auth", "Basic", "Bearer"]


class Bearer:
    """`Authorization: Bearer <token>`."""

    def __init__(self, token: str) -> None:
        self.header = "authorization"
        self.value = f"Bearer {_secret('token', token)}"
        self.secrets = (token,)

    def __repr__(self) -> str:
        return "Bearer(…)"


class Basic:
    """`Authorization: Basic <user and password>`."""

    def __init__(self, user: str, password: str) -> None:
        if not isinstance(user, str) or ":" in user:
            raise ConfigurationError(
                "The user of Basic is not text, or holds a colon, which ends the user's name in "
                "this scheme; write the user and the password as two arguments."
            )
        encoded = base64.b64encode(f"{user}:{_secret('password', password)}".encode()).decode()
        self.header = "authorization"
        self.value = f"Basic {encoded}"
        self.secrets = (password, encoded)

    def __repr__(self) -> str:
        return "Basic(…)"


class ApiKey:
    """A header of the destination's own, such as `ApiKey("x-api-key", "…")`."""

    def __init__(self, header: str, value: str) -> None:
        self.header = check_header_name(header)
        self.value = _secret("value", value)
        self.secrets = (value,)

    def __repr__(self) -> str:
        return f"ApiKey({self.header!r}, …)"


Auth = Bearer | Basic | ApiKey


def _secret(name: str, value: object) -> str:
    if not isinstance(value, str) or not value or not is_header_value(value):
        raise ConfigurationError(
            f"The {name} for the destination is empty, not text, or has a character that no header "
            "may hold; a line break at the end, as files have it, is a common cause."
        )
    return value
