"""What all stores make of a change to a secret."""

from __future__ import annotations

from datetime import datetime

from redrive.model.audit import Actor
from redrive.model.secret import Secret

__all__ = ["next_secret"]


def next_secret(
    before: Secret | None, name: str, *, key_id: str, actor: Actor, now: datetime
) -> Secret:
    """Return the secret that is kept from now on."""
    return Secret(
        name=name,
        version=1 if before is None else before.version + 1,
        key_id=key_id,
        changed_at=now,
        changed_by=actor.by,
    )
