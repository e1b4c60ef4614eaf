"""Passwords: what is asked of them, and what is kept of them."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from base64 import b64decode, b64encode
from typing import NamedTuple

from redrive.errors import ConfigurationError

__all__ = [
    "SALT_BYTES",
    "USUAL",
    "Cost",
    "check_password",
    "cost_of",
    "digest_password",
    "is_password",
    "nobodys_password",
]

SALT_BYTES = 16
_DIGEST_BYTES = 32
_SHORTEST = 12
_LONGEST = 1_000


class Cost(NamedTuple):
    """What it takes to try one password with scrypt: 128·n·r bytes, and p times the work."""

    n: int
    r: int
    p: int

    @property
    def work(self) -> int:
        """How much it is, compared with other costs."""
        return self.n * self.r * self.p


USUAL = Cost(n=2**14, r=8, p=5)
"""16 MB and some tenths of a second."""


def check_password(password: object, *, name: str) -> str:
    """Return a new password, or say what is wrong with it; it is never repeated."""
    if not isinstance(password, str) or not _SHORTEST <= len(password) <= _LONGEST:
        raise ConfigurationError(
            f"A password has {_SHORTEST} to {_LONGEST} characters; four words in a row are a good "
            "one."
        )
    if password.casefold() == name.casefold():
        raise ConfigurationError("The password is the user's name; choose another.")
    return password


def digest_password(password: str, salt: bytes, cost: Cost = USUAL) -> str:
    """Return what is kept of a password: scrypt's digest, with the salt and the costs."""
    digest = b64encode(_scrypt(password, salt, cost)).decode()
    return f"scrypt${cost.n}${cost.r}${cost.p}${b64encode(salt).decode()}${digest}"


def is_password(password: object, kept: str) -> bool:
    """Tell whether it is the password of which this is kept; takes as long if it is not."""
    _, n, r, p, salt, digest = kept.split("$")
    cost = Cost(int(n), int(r), int(p))
    given = password if isinstance(password, str) and len(password) <= _LONGEST else ""
    found = _scrypt(given, b64decode(salt), cost)
    return hmac.compare_digest(found, b64decode(digest)) and given == password


def nobodys_password(cost: Cost) -> str:
    """Return what is compared with where nobody has that name, so that it takes as long."""
    empty, nothing = b64encode(bytes(SALT_BYTES)), b64encode(bytes(_DIGEST_BYTES))
    return f"scrypt${cost.n}${cost.r}${cost.p}${empty.decode()}${nothing.decode()}"


def cost_of(kept: str) -> Cost:
    """Return what it took to make this."""
    _, n, r, p, *_ = kept.split("$")
    return Cost(int(n), int(r), int(p))


def _scrypt(password: str, salt: bytes, cost: Cost) -> bytes:
    # The same letters can be typed in more than one way.
    text = unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(
        text,
        salt=salt,
        n=cost.n,
        r=cost.r,
        p=cost.p,
        maxmem=256 * cost.n * cost.r + 2**20,
        dklen=_DIGEST_BYTES,
    )
