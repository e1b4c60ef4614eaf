"""Who may: access tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, safe
from redrive.model.access import Token

__all__ = ["tokens"]


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


def _state(token: Token, now: datetime) -> Text:
    if token.revoked_at is not None:
        return Text(f"revoked {ago(token.revoked_at, now)}", style="dim")
    if token.expires_at is None:
        return Text("current", style="green")
    if not token.is_current(now):
        return Text(f"expired {ago(token.expires_at, now)}", style="dim")
    return Text(f"current, expires {ago(token.expires_at, now)}", style="green")
