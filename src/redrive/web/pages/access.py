"""Users and tokens: who may do how much, and letting somebody in or out."""

from __future__ import annotations

import msgspec

from redrive.model.access import Role, Token, User
from redrive.web.pages.page import Moved, Page, Visit

__all__ = [
    "Access",
    "add_user",
    "create_token",
    "remove_user",
    "revoke_token",
    "set_password",
    "show_access",
]


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Who may: users by name, tokens the latest first; `secret` is that of a token just made."""

    users: tuple[User, ...]
    tokens: tuple[Token, ...]
    roles: tuple[str, ...] = tuple(Role)
    secret: str = ""
    made: str = ""


async def show_access(visit: Visit) -> Page:
    """Show who may do how much."""
    return await _page(visit)


async def create_token(visit: Visit) -> Page:
    """Make a token; its secret is on this page, and never again."""
    form = visit.form
    made = await visit.operations.create_token(
        form.get("name", "").strip(),
        role=form.get("role", ""),
        by=visit.by,
        why=visit.why,
        tenant=form.get("tenant", "").strip() or None,
        destinations=_names(form.get("destinations", "")),
        expires_in=form.get("expires_in", "").strip() or None,
        caller=visit.caller.grant,
    )
    return await _page(visit, secret=made.secret, made=made.token.name)


async def revoke_token(visit: Visit) -> Moved:
    """End a token for good."""
    is_new = await visit.operations.revoke_token(
        visit.form.get("id", ""), by=visit.by, why=visit.why, caller=visit.caller.grant
    )
    return Moved("/access", "The token is revoked." if is_new else "It was revoked before.")


async def add_user(visit: Visit) -> Moved:
    """Add a user, who may log in from now on."""
    form = visit.form
    user = await visit.operations.add_user(
        form.get("name", "").strip(),
        form.get("password", ""),
        role=form.get("role", ""),
        by=visit.by,
        why=visit.why,
        tenant=form.get("tenant", "").strip() or None,
        destinations=_names(form.get("destinations", "")),
        caller=visit.caller.grant,
    )
    return Moved("/access", f"{user.name} may log in.")


async def set_password(visit: Visit) -> Moved:
    """Change a password; all sessions of the user end."""
    await visit.operations.set_password(
        visit.name,
        visit.form.get("password", ""),
        by=visit.by,
        why=visit.why,
        caller=visit.caller.grant,
    )
    return Moved("/access", f"The password of {visit.name} is changed; their sessions have ended.")


async def remove_user(visit: Visit) -> Moved:
    """Remove a user; all their sessions end."""
    await visit.operations.remove_user(
        visit.name, by=visit.by, why=visit.why, caller=visit.caller.grant
    )
    return Moved("/access", f"{visit.name} is removed; their sessions have ended.")


async def _page(visit: Visit, *, secret: str = "", made: str = "") -> Page:
    grant = visit.caller.grant
    model = Access(
        users=tuple(await visit.operations.users(caller=grant)),
        tokens=tuple(await visit.operations.tokens(caller=grant)),
        secret=secret,
        made=made,
    )
    return Page(template="access.html", title="Users and tokens", model=model)


def _names(text: str) -> tuple[str, ...]:
    return tuple(one for one in text.replace(",", " ").split() if one)
