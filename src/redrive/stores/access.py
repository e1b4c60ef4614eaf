"""What all stores make of a change to who may."""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.model.access import Grant, LoginSession, Token, User
from redrive.model.audit import Actor
from redrive.store import TokenTerms

__all__ = ["named_token", "named_user", "new_session", "new_token", "new_user", "public_id"]

_PUBLIC = 12


def new_token(terms: TokenTerms, actor: Actor, now: datetime) -> Token:
    """Return the token that is kept by these terms from now on."""
    return Token(
        id=terms.id,
        name=terms.name,
        role=terms.grant.role,
        tenant=terms.grant.tenant,
        destinations=terms.grant.destinations,
        created_at=now,
        created_by=actor.by,
        expires_at=None if terms.lasts is None else now + terms.lasts,
    )


def named_token(token: Token) -> str:
    """Return which token it is and what it allows, as the audit log has it."""
    return f"{token.name} ({token.id}), {token.grant}"


def new_user(name: str, grant: Grant, actor: Actor, now: datetime) -> User:
    """Return the user that is kept from now on."""
    return User(
        name=name,
        role=grant.role,
        tenant=grant.tenant,
        destinations=grant.destinations,
        created_at=now,
        created_by=actor.by,
        password_changed_at=now,
    )


def named_user(user: User) -> str:
    """Return which user it is and what they may, as the audit log has it."""
    return f"{user.name}, {user.grant}"


def new_session(
    session_id: str, user: User, now: datetime, *, idle: timedelta, lasts: timedelta
) -> LoginSession:
    """Return the session that begins now."""
    return LoginSession(
        id=public_id(session_id),
        user=user,
        opened_at=now,
        seen_at=now,
        idle=idle,
        ends_at=now + lasts,
    )


def public_id(session_id: str) -> str:
    """Return by what a session is called: too little of its digest to find it by."""
    return session_id[:_PUBLIC]
