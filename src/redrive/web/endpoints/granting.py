"""Granting: letting others in by tokens, and the secrets by which we are let in elsewhere."""

from __future__ import annotations

from redrive.model.access import NewToken
from redrive.model.encryption import Encryption
from redrive.model.secret import Rotated, Secret
from redrive.web.answers import Acted, Encrypted, Secrets, Tokens
from redrive.web.requests import ActWithReason, CreateToken, ListTokens, Nothing, SetSecret
from redrive.web.route import Call

__all__ = [
    "create_token",
    "decrypt",
    "delete_secret",
    "encrypt",
    "encryption",
    "finish_encryption",
    "revoke_token",
    "rotate_secrets",
    "secrets",
    "set_secret",
    "tokens",
]


async def tokens(call: Call, given: ListTokens) -> Tokens:
    """Return the tokens that may no more than the caller, the latest first; never their secrets."""
    found = await call.operations.tokens(
        before=given.cursor, limit=given.limit, caller=call.caller.grant
    )
    return Tokens(found, found[-1].id if len(found) == given.limit else None)


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


async def secrets(call: Call, _: object) -> Secrets:
    """Return the secrets that are kept, by name; never what they are."""
    return Secrets(await call.operations.secrets())


async def set_secret(call: Call, given: SetSecret) -> Secret:
    """Keep a secret, encrypted, in place of the one of that name."""
    return await call.operations.set_secret(given.name, given.value, by=call.by, why=given.why)


async def rotate_secrets(call: Call, given: ActWithReason) -> Rotated:
    """Encrypt all secrets by the current key."""
    return await call.operations.rotate_secrets(by=call.by, why=given.why)


async def delete_secret(call: Call, given: ActWithReason) -> Acted:
    """Forget a secret for good."""
    return Acted(await call.operations.delete_secret(call.name, by=call.by, why=given.why))


async def encryption(call: Call, _: Nothing) -> Encrypted:
    """Return by which key payloads are kept, and how far that is."""
    return Encrypted(await call.operations.encryption())


async def encrypt(call: Call, given: ActWithReason) -> Encryption:
    """Encrypt payloads by the first of the server's keys from now on."""
    return await call.operations.encrypt(by=call.by, why=given.why)


async def decrypt(call: Call, given: ActWithReason) -> Encryption:
    """Keep payloads as they are from now on, and decrypt the others by and by."""
    return await call.operations.decrypt(by=call.by, why=given.why)


async def finish_encryption(call: Call, _: Nothing) -> Encrypted:
    """Rewrite all that is still to be, as workers do by themselves."""
    return Encrypted(await call.operations.finish_encryption())
