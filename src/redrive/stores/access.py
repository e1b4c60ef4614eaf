"""What all stores make of a change to who may."""

from __future__ import annotations

from datetime import datetime

from redrive.model.access import Token
from redrive.model.audit import Actor
from redrive.store import TokenTerms

__all__ = ["named_token", "new_token"]


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
