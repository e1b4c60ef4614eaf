"""Mail: what an event says to whom, checked before any server sees it."""

from __future__ import annotations

from redrive.transports.mail.composing import compose_mail
from redrive.transports.mail.letter import Mail, MailOptions, Recipe, read_mail, read_recipe
from redrive.transports.mail.message import write_message

__all__ = [
    "Mail",
    "MailOptions",
    "Recipe",
    "compose_mail",
    "read_mail",
    "read_recipe",
    "write_message",
]
