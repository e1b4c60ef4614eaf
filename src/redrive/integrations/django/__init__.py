"""Redrive in a Django project: publish inside `transaction.atomic`, work by `manage.py`.

Add `"redrive.integrations.django"` to INSTALLED_APPS, and say where your app is:
`REDRIVE_APP = "shop.events:app"`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from redrive.integrations.django.project import connection_of, get_app
from redrive.model.event import EventAttributes, NewEvent, Receipt

__all__ = ["get_app", "publish", "publish_many"]


def publish(
    event_type: str,
    payload: object = None,
    *,
    using: str | None = None,
    **attributes: Unpack[EventAttributes],
) -> Receipt:
    """Publish an event in the `transaction.atomic` block that is open: it commits with your rows.

    `using` is the alias of the database, if it is not that of REDRIVE_DATABASE.
    """
    within = connection_of(using)
    return get_app().sync.publish(event_type, payload, within=within, **attributes)


def publish_many(events: Sequence[NewEvent], *, using: str | None = None) -> Sequence[Receipt]:
    """Publish all of the events in the open `transaction.atomic` block, or none."""
    return get_app().sync.publish_many(events, within=connection_of(using))
