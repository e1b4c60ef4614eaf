"""Who may: access tokens and users, and the secrets by which we are let in elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, safe
from redrive.model.access import Token, User
from redrive.model.secret import Secret

__all__ = ["secrets", "tokens", "users"]


def tokens(found: Sequence[Token], *, now: datetime) -> Iterator[RenderableType]:
    """Show tokens, the latest first."""
    if not found:
        yield Text("No access token yet; make one with: redrive token create NAME --role …")
        return
    table = Listing()
    table.add_words("ID", "Name")
    table.add_words("May", lines="folded")
    table.add_figures("Used", is_text=True)
    table.add_words("State", lines="folded")
    for one in found:
        used = "never" if one.last_used_at is None else ago(one.last_used_at, now)
        table.add_row(safe(one.id), safe(one.name), safe(str(one.grant)), used, _state(one, now))
    yield table


def users(found: Sequence[User], *, now: datetime) -> Iterator[RenderableType]:
    """Show users, by name."""
    if not found:
        yield Text("No user yet; add one with: redrive user add NAME --role …")
        return
    table = Listing()
    table.add_words("Name")
    table.add_words("May", lines="folded")
    table.add_figures("Added", "Password", is_text=True)
    for one in found:
        added, changed = ago(one.created_at, now), ago(one.password_changed_at, now)
        table.add_row(safe(one.name), safe(str(one.grant)), added, changed)
    yield table


def secrets(found: Sequence[Secret], *, now: datetime) -> Iterator[RenderableType]:
    """Show secrets, by name."""
    if not found:
        yield Text("No secret yet; set one with: redrive secret set NAME --why …")
        return
    table = Listing()
    table.add_words("Name")
    table.add_figures("Version")
    table.add_words("Key", "By")
    table.add_figures("Set", is_text=True)
    for one in found:
        changed = ago(one.changed_at, now)
        table.add_row(
            safe(one.name), str(one.version), safe(one.key_id), safe(one.changed_by), changed
        )
    yield table


def _state(token: Token, now: datetime) -> Text:
    if token.revoked_at is not None:
        return Text(f"revoked {ago(token.revoked_at, now)}", style="dim")
    if token.expires_at is None:
        return Text("current", style="green")
    if not token.is_current(now):
        return Text(f"expired {ago(token.expires_at, now)}", style="dim")
    return Text(f"current, expires {ago(token.expires_at, now)}", style="green")
