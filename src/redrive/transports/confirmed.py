"""Confirms of an AMQP broker: what one channel has published together waits together.

The library's own publish waits for the line after each message, and writes each by itself. What is
done here instead is its books: who waits for which number, and which number a message that comes
back had. They are open, but not documented, so pyproject.toml bounds the version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aiormq.channel import Channel
    from pamqp.commands import Basic

__all__ = ["Publication", "confirmed", "written"]


class Publication(NamedTuple):
    """A message as it goes over the line, and the id that it is known by if it comes back."""

    id: str
    frames: bytes


def written(
    channel: Channel, exchange: str, key: str, properties: Basic.Properties, body: bytes
) -> Publication:
    """Return a message for an exchange, to be given back if no queue takes it."""
    from pamqp.body import ContentBody  # noqa: PLC0415 - the extra
    from pamqp.commands import Basic  # noqa: PLC0415
    from pamqp.frame import marshal  # noqa: PLC0415
    from pamqp.header import ContentHeader  # noqa: PLC0415

    size = channel.max_content_size
    head = [
        marshal(Basic.Publish(exchange=exchange, routing_key=key, mandatory=True), channel.number),
        marshal(ContentHeader(body_size=len(body), properties=properties), channel.number),
    ]
    pieces = (ContentBody(body[begin : begin + size]) for begin in range(0, len(body), size))
    frames = [*head, *(marshal(piece, channel.number) for piece in pieces)]
    return Publication(properties.message_id or "", b"".join(frames))


async def confirmed(
    channel: Channel, publications: Sequence[Publication]
) -> list[BaseException | None]:
    """Publish all at once; returns for each what was wrong with it, or that nothing was.

    A channel that closes is what was wrong with each that had no answer yet. Whoever is cancelled
    leaves the channel as it is to the others who wait on it.
    """
    from aiormq.abc import ChannelFrame  # noqa: PLC0415 - the extra

    _check_is_open(channel)
    gone = asyncio.get_running_loop().create_future()  # has what comes behind wait for the line
    frames = b"".join(one.frames for one in publications)
    await channel.write_queue.put(ChannelFrame(frames, should_close=False, drain_future=gone))
    _check_is_open(channel)
    # Nothing has run since it was put: no answer can have come, and numbers are as the queue is.
    answers = [_expect(channel, one) for one in publications]
    await asyncio.wait(answers)
    for one in publications:
        channel.message_id_delivery_tag.pop(one.id, None)
    return [_wrong(answer) for answer in answers]


def _expect(channel: Channel, publication: Publication) -> asyncio.Future[object]:
    channel.delivery_tag += 1
    answer: asyncio.Future[object] = channel.create_future()
    channel.confirmations[channel.delivery_tag] = answer
    channel.message_id_delivery_tag[publication.id] = channel.delivery_tag
    return answer


def _check_is_open(channel: Channel) -> None:
    if channel.is_closed:
        raise ConnectionResetError("the channel was closed")


def _wrong(answer: asyncio.Future[object]) -> BaseException | None:
    return asyncio.CancelledError() if answer.cancelled() else answer.exception()
