"""Composing: the mail of a delivery as the bytes that are sent, or why there can be none."""

from __future__ import annotations

import asyncio
from functools import partial

from redrive.errors import PayloadError, RenderError
from redrive.model.delivery import Leased
from redrive.model.outcome import Faulted, Nature
from redrive.transports.failures import refused
from redrive.transports.mail.letter import Mail, Recipe, read_mail
from redrive.transports.mail.message import write_message

__all__ = ["compose_mail"]


async def compose_mail(recipe: Recipe, one: Leased) -> tuple[Mail, bytes] | Faulted:
    """Return the mail that an event makes, and its bytes; files are read on a thread."""
    try:
        mail = read_mail(recipe, one.event)
        write = partial(write_message, mail, one.event, one.destination, limit=recipe.limit)
        message = await asyncio.to_thread(write) if mail.attachments else write()
    except (PayloadError, RenderError, ValueError) as error:
        return refused(
            str(error),
            error_class=type(error).__name__,
            rule="mail does not fit",
            nature=Nature.TERMINAL,
        )
    except OSError as error:
        return refused(
            f"An attachment cannot be read: {error.strerror}.",
            error_class=type(error).__name__,
            rule="attachment",
            nature=Nature.TRANSIENT,
        )
    return mail, message
