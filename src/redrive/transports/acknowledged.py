"""Acknowledgements of a JetStream: what one connection has published together waits together."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

__all__ = ["Acknowledged", "Link"]


class Acknowledged:
    """The answers to what was published together; one wait is enough for all of them."""

    def __init__(self, link: Link, size: int) -> None:
        self.answers: dict[int, Msg] = {}
        self._link = link
        self._left = size
        self._tokens: list[str] = []
        self._is_over = asyncio.get_running_loop().create_future()

    def inbox(self, place: int) -> str:
        """Return where the answer to one of them is to be sent."""
        token = self._link.ask(self, place)
        self._tokens.append(token)
        return f"{self._link.inbox}.{token}"

    def hear(self, place: int, answer: Msg) -> None:
        """Take an answer in."""
        self.answers[place] = answer
        self.forgo()

    def forgo(self) -> None:
        """Wait for one answer less, as there will be none."""
        self._left -= 1
        if self._left == 0:
            self.give_up()

    def give_up(self) -> None:
        """Wait no longer: the connection is closed."""
        if not self._is_over.done():
            self._is_over.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return once all are answered, or nobody will answer, or the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_over
        except TimeoutError:
            return
        finally:
            self._link.forget(self._tokens)


class Link(NamedTuple):
    """A connection, and who waits for answers on it."""

    client: Client
    inbox: str
    waiting: dict[str, tuple[Acknowledged, int]]
    numbers: count[int]

    @classmethod
    async def over(cls, client: Client, waiting: dict[str, tuple[Acknowledged, int]]) -> Link:
        """Begin to listen for answers."""
        link = cls(client, client.new_inbox(), waiting, count())
        await client.subscribe(f"{link.inbox}.*", cb=link.heard)
        return link

    def ask(self, asking: Acknowledged, place: int) -> str:
        """Return the token of an answer that somebody is about to wait for."""
        token = str(next(self.numbers))
        self.waiting[token] = (asking, place)
        return token

    async def heard(self, answer: Msg) -> None:
        """Give an answer to who waits for it, if they still do."""
        found = self.waiting.pop(answer.subject[len(self.inbox) + 1 :], None)
        if found is not None:
            asking, place = found
            asking.hear(place, answer)

    def forget(self, tokens: list[str]) -> None:
        """Wait for these answers no longer."""
        for token in tokens:
            self.waiting.pop(token, None)
