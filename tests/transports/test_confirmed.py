"""What an AMQP channel has published together, and each answer a broker can give to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiormq.channel import Channel
from aiormq.connection import Connection
from aiormq.exceptions import ChannelNotFoundEntity, DeliveryError, PublishError
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from redrive.transports.confirmed import Publication, confirmed, written
from tests.waiting import eventually

Answers = asyncio.Task[list[BaseException | None]]
_BODY = b"an order"


class ABroker:
    """A channel as the library has it, whose other end says what a test wants."""

    def __init__(self) -> None:
        connection = Connection("amqp://127.0.0.1")
        connection.connection_tune = commands.Connection.Tune(frame_max=4096, heartbeat=0)
        connection.server_properties = {"capabilities": {"publisher_confirms": True}}
        self.channel = Channel(connection, 1)

    async def hears(self, *ids: str) -> Answers:
        """Publish these together, and return who waits for the answers."""
        answers = asyncio.create_task(confirmed(self.channel, self.publications(ids)))
        before = self.channel.delivery_tag
        await eventually(
            lambda: self.channel.delivery_tag == before + len(ids), what="all were published"
        )
        return answers

    def publications(self, ids: Sequence[str]) -> list[Publication]:
        return [
            written(self.channel, "", "orders", commands.Basic.Properties(message_id=one), _BODY)
            for one in ids
        ]

    def says(self, *frames: object) -> None:
        for frame in frames:
            self.channel.frames.put_nowait((0, frame))

    def gives_back(self, message_id: str) -> None:
        """Say that no queue takes it; that it is settled comes after."""
        properties = commands.Basic.Properties(message_id=message_id)
        self.says(
            commands.Basic.Return(312, "NO_ROUTE", "", "orders"),
            ContentHeader(body_size=len(_BODY), properties=properties),
            ContentBody(_BODY),
        )

    async def close(self) -> None:
        await self.channel.close()


def ack(number: int, *, multiple: bool = False) -> commands.Basic.Ack:
    return commands.Basic.Ack(delivery_tag=number, multiple=multiple)


async def test_what_is_published_together_is_written_together() -> None:
    broker = ABroker()

    answers = await broker.hears("a", "b", "c")
    [frames] = [broker.channel.write_queue.get_nowait().payload]
    broker.says(ack(3, multiple=True))

    assert await answers == [None, None, None]
    assert frames.count(b"orders") == 3
    assert broker.channel.write_queue.empty()
    await broker.close()


async def test_each_message_has_the_answer_that_was_meant_for_it() -> None:
    broker = ABroker()

    answers = await broker.hears("a", "b", "c", "d")
    broker.says(ack(4), commands.Basic.Nack(delivery_tag=2))
    broker.gives_back("c")
    broker.says(ack(3), ack(1))

    first, nacked, returned, last = await answers
    assert (first, last) == (None, None)
    assert type(nacked) is DeliveryError
    assert type(returned) is PublishError
    await broker.close()


async def test_a_large_message_goes_in_pieces_of_what_a_frame_may_hold() -> None:
    broker = ABroker()
    size = broker.channel.max_content_size
    properties = commands.Basic.Properties(message_id="a")

    whole = written(broker.channel, "", "orders", properties, b"x" * size)
    parted = written(broker.channel, "", "orders", properties, b"x" * (size + 1))

    around = len(parted.frames) - len(whole.frames) - 1
    assert around == 8  # a second frame is around the one byte more
    await broker.close()


async def test_a_channel_that_closes_fails_what_was_not_confirmed_and_nothing_else() -> None:
    broker = ABroker()

    answers = await broker.hears("a", "b", "c")
    broker.says(ack(2), commands.Channel.Close(404, "NOT_FOUND", 0, 0))

    first, second, third = await answers
    assert second is None
    assert type(first) is type(third) is ChannelNotFoundEntity


async def test_nothing_is_published_on_a_channel_that_is_closed() -> None:
    broker = ABroker()
    await broker.close()

    [outcome] = await asyncio.gather(
        confirmed(broker.channel, broker.publications(["a"])), return_exceptions=True
    )

    assert isinstance(outcome, ConnectionResetError)
    assert broker.channel.write_queue.empty()


async def test_what_comes_for_one_that_was_cancelled_leaves_the_others_alone() -> None:
    broker = ABroker()
    cancelled = await broker.hears("a", "b")
    others = await broker.hears("c")

    cancelled.cancel()
    [end] = await asyncio.gather(cancelled, return_exceptions=True)
    broker.gives_back("a")
    broker.says(ack(1), commands.Basic.Nack(delivery_tag=2), ack(3))

    assert isinstance(end, asyncio.CancelledError)
    assert await others == [None]
    await broker.close()


async def test_messages_are_numbered_in_the_order_they_are_written_in() -> None:
    broker = ABroker()
    size = broker.channel.write_queue.maxsize
    crowd = [
        asyncio.create_task(confirmed(broker.channel, broker.publications([str(number)])))
        for number in range(2 * size)
    ]

    frames = [await broker.channel.write_queue.get() for _ in crowd]
    await eventually(lambda: broker.channel.delivery_tag == len(crowd), what="all are numbered")
    numbers = dict(broker.channel.message_id_delivery_tag)
    broker.says(ack(len(crowd), multiple=True))

    assert await asyncio.gather(*crowd) == [[None]] * len(crowd)
    assert [
        numbers[str(number)]
        for frame in frames
        for number in range(2 * size)
        if broker.publications([str(number)])[0].frames == frame.payload
    ] == list(range(1, len(crowd) + 1))
    assert broker.channel.message_id_delivery_tag == {}
    await broker.close()
