"""Who we are to an HTTP destination: a bearer token, a password or an API key, never printed."""

from __future__ import annotations

import base64
from typing import Literal, get_args
from urllib.parse import quote, urlsplit

from redrive.errors import ConfigurationError
from redrive.transports.http.headers import check_header_name, is_header_value

__all__ = ["ApiKey", "Auth", "Basic", "Bearer", "OAuth2", "SendAs"]

SendAs = Literal["basic", "body"]


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


class OAuth2:
    """A bearer token that is fetched with credentials of ours, and fetched anew when it ends.

    `send_as` says how the credentials go to the `token_url`: in a header, or with the form.
    """

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str = "",
        audience: str = "",
        send_as: SendAs = "basic",
    ) -> None:
        if not isinstance(client_id, str) or not client_id:
            raise ConfigurationError("The client_id of OAuth2 is empty, or not text.")
        if not isinstance(scope, str) or not isinstance(audience, str):
            raise ConfigurationError("The scope and the audience of OAuth2 are text.")
        if send_as not in get_args(SendAs):
            raise ConfigurationError(
                f"send_as is {send_as!r}; it is one of {', '.join(get_args(SendAs))}."
            )
        secret = _secret("client_secret", client_secret)
        self.header = "authorization"
        self.token_url = token_url
        self.form = {"grant_type": "client_credentials"}
        self.form |= {"scope": scope} if scope else {}
        self.form |= {"audience": audience} if audience else {}
        self.headers = {"accept": "application/json", "accept-encoding": "identity"}
        self.secrets: tuple[str, ...] = (secret,)
        if send_as == "body":
            self.form |= {"client_id": client_id, "client_secret": secret}
        else:
            both = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
            encoded = base64.b64encode(both.encode()).decode()
            self.headers["authorization"] = f"Basic {encoded}"
            self.secrets = (secret, encoded)

    @property
    def host(self) -> str:
        """Where tokens come from."""
        return urlsplit(self.token_url).netloc

    def __repr__(self) -> str:
        return f"OAuth2({self.host!r}, …)"


Auth = Bearer | Basic | ApiKey | OAuth2


def _secret(name: str, value: object) -> str:
    if not isinstance(value, str) or not value or not is_header_value(value):
        raise ConfigurationError(
            f"The {name} for the destination is empty, not text, or has a character that no header "
            "may hold; a line break at the end, as files have it, is a common cause."
        )
    return value
