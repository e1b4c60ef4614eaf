"""Granting: letting others in by tokens; nobody gives more than they have."""

from __future__ import annotations

from redrive.model.access import NewToken
from redrive.web.answers import Acted, Tokens
from redrive.web.requests import ActWithReason, CreateToken, Nothing
from redrive.web.route import Call

__all__ = ["create_token", "revoke_token", "tokens"]


async def tokens(call: Call, _: Nothing) -> Tokens:
    """Return the tokens that may no more than the caller, the latest first; never their secrets."""
    return Tokens(await call.operations.tokens(caller=call.caller.grant))


async def create_token(call: Call, given: CreateToken) -> NewToken:
    """Make a token; its secret is shown this once."""
    return await call.operations.create_token(
        given.name,
        role=given.role,
        tenant=given.tenant,
        destinations=given.destinations,
        expires_in=given.expires_in,
        by=call.by,
        why=given.why,
        caller=call.caller.grant,
    )


async def revoke_token(call: Call, given: ActWithReason) -> Acted:
    """End a token for good."""
    return Acted(
        await call.operations.revoke_token(
            call.name, by=call.by, why=given.why, caller=call.caller.grant
        )
    )
