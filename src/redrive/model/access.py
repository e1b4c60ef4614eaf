"""Who may: roles, what they are limited to, and the tokens, users and sessions that have them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.checks import check_text
from redrive.model.destination import check_destination_name

__all__ = [
    "WHOLE_STORE",
    "Grant",
    "LoginSession",
    "NewSession",
    "NewToken",
    "Role",
    "Scope",
    "Token",
    "User",
    "check_access_name",
    "is_bearer_name",
]

_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@+")
_BEARER_NAME = re.compile(r"(?:mcp:)?token:[\w.@+-]{1,100}:[a-z2-7]{12}", re.ASCII)
_LONGEST_NAME = 100
_LONGEST_SOURCE = 200
_MOST_DESTINATIONS = 100


class Role(StrEnum):
    """How much somebody may do."""

    PUBLISH = "publish"
    VIEW = "view"
    OPERATE = "operate"
    """To act on what there is, and to view it."""
    ADMIN = "admin"
    """Everything, and to let others in."""

    def includes(self, other: Role) -> bool:
        """Tell whether who has this role may do what the other allows.

        >>> Role.OPERATE.includes(Role.VIEW), Role.OPERATE.includes(Role.PUBLISH)
        (True, False)
        """
        return self in (other, Role.ADMIN) or (self, other) == (Role.OPERATE, Role.VIEW)


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the store: what is one tenant's, at some destinations, or both; all of it else."""

    tenant: str | None = None
    destinations: tuple[str, ...] = ()

    @property
    def is_limited(self) -> bool:
        """Whether it is a part of the store only."""
        return self.tenant is not None or bool(self.destinations)

    def holds(self, *, tenant: str | None, destination: str) -> bool:
        """Tell whether a delivery of this tenant to this destination is in it.

        >>> Scope(tenant="acme").holds(tenant=None, destination="billing")
        False
        """
        return self.tenant in (None, tenant) and (
            not self.destinations or destination in self.destinations
        )


WHOLE_STORE = Scope()


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody may: a role, for one tenant or all, at some destinations or all."""

    role: Role
    tenant: str | None = None
    destinations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.role not in tuple(Role):
            raise ConfigurationError(f"role is {self.role!r}; it is one of {', '.join(Role)}.")
        msgspec.structs.force_setattr(self, "role", Role(self.role))
        if self.tenant is not None and not check_text("tenant", self.tenant):
            raise ConfigurationError("tenant is ''; name one, or leave it out for all of them.")
        msgspec.structs.force_setattr(self, "destinations", _checked(self.destinations))
        if self.role is Role.PUBLISH and self.destinations:
            raise ConfigurationError(
                "The role publish cannot be limited to destinations, because routes say who gets "
                "an event; limit it to a tenant, or not at all."
            )

    def __str__(self) -> str:
        """Say what it allows.

        >>> print(Grant(role=Role.VIEW, tenant="acme", destinations=("billing", "mail")))
        view for acme at billing, mail
        """
        tenant = "" if self.tenant is None else f" for {self.tenant}"
        places = f" at {', '.join(self.destinations)}" if self.destinations else ""
        return f"{self.role}{tenant}{places}"

    @property
    def scope(self) -> Scope:
        """The part of the store that it is for."""
        return Scope(tenant=self.tenant, destinations=self.destinations)

    @property
    def is_limited(self) -> bool:
        """Whether it is for a part of the store only."""
        return self.scope.is_limited


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An access token as everybody may see it; its secret is kept by nobody but its owner.

    `last_used_at` is right to the minute.
    """

    id: str
    name: str
    role: Role
    tenant: str | None = None
    destinations: tuple[str, ...] = ()
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    @property
    def grant(self) -> Grant:
        """What its bearer may."""
        return Grant(role=self.role, tenant=self.tenant, destinations=self.destinations)

    @property
    def by(self) -> str:
        """Who its bearer is in the audit log."""
        return f"token:{self.name}:{self.id}"

    @property
    def source(self) -> str:
        """Where the events come from that its bearer publishes; no other tenant's has the same."""
        return _source(self.tenant, self.name)

    def is_current(self, now: datetime) -> bool:
        """Tell whether it opens the door: it has neither expired nor was it revoked."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def had_ended(self, at: datetime) -> bool:
        """Tell whether it was revoked or had expired by then."""
        return any(end is not None and end <= at for end in (self.revoked_at, self.expires_at))


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was just made, and the secret that its bearer shows; it is told this once."""

    token: Token
    secret: str


class User(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person who logs in with a password, of which a store keeps a slow digest."""

    name: str
    role: Role
    tenant: str | None = None
    destinations: tuple[str, ...] = ()
    created_at: datetime
    created_by: str
    password_changed_at: datetime

    @property
    def grant(self) -> Grant:
        """What they may."""
        return Grant(role=self.role, tenant=self.tenant, destinations=self.destinations)

    @property
    def by(self) -> str:
        """Who they are in the audit log."""
        return f"user:{self.name}"

    @property
    def source(self) -> str:
        """Where the events come from that they publish; no token's has the same."""
        return _source(self.tenant, self.by)


class LoginSession(msgspec.Struct, frozen=True, kw_only=True):
    """A user who has logged in.

    It ends at `ends_at`, and before that when nothing was seen of it for as long as `idle`.
    `seen_at` is right to the minute. `id` is public: it opens nothing.
    """

    id: str
    user: User
    opened_at: datetime
    seen_at: datetime
    idle: timedelta
    ends_at: datetime

    @property
    def by(self) -> str:
        """Who acts in it, as the audit log has it."""
        return f"{self.user.by}:{self.id}"

    def is_current(self, now: datetime) -> bool:
        """Tell whether it opens the door."""
        return now < min(self.ends_at, self.seen_at + self.idle)


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was just opened, and the secret that its browser shows."""

    session: LoginSession
    secret: str


def is_bearer_name(value: object) -> bool:
    """Tell whether it is by what the audit log calls the bearer of a token.

    >>> is_bearer_name("token:ann:abcdefgh2345"), is_bearer_name("token: hunter2")
    (True, False)
    """
    return isinstance(value, str) and _BEARER_NAME.fullmatch(value) is not None


def check_access_name(name: object, grant: Grant) -> str:
    """Return the name of a token or a user, or say what is wrong with it."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _LONGEST_NAME
        or not _NAME_LETTERS.issuperset(name)
    ):
        raise ConfigurationError(
            f"The name is {name!r:.300}; use letters, digits, '.', '_', '-', '@' and '+', at most "
            '100 characters, such as "shop" or "ann@example.com".'
        )
    if len(_source(grant.tenant, name)) > _LONGEST_SOURCE:
        raise ConfigurationError(
            f"The name {name!r} and the tenant's are too long together, which are the source of "
            f"what is published; both have at most {_LONGEST_SOURCE - 1} characters."
        )
    return name


def _source(tenant: str | None, name: str) -> str:
    """Return a source within a tenant; a slash in its name begins no other tenant's."""
    if tenant is None:
        return name
    return f"{tenant.replace('%', '%25').replace('/', '%2F')}/{name}"


def _checked(destinations: Iterable[str]) -> tuple[str, ...]:
    names = None if isinstance(destinations, str) else list(destinations)
    if names is None or len(names) > _MOST_DESTINATIONS:
        raise ConfigurationError(
            f"destinations is {destinations!r:.300}; it is a list of at most {_MOST_DESTINATIONS} "
            'names, such as ["billing"], or empty for all of them.'
        )
    return tuple(sorted(dict.fromkeys(check_destination_name(one) for one in names)))
