"""Ways that know nothing of rules: they carry what a rule makes of an event as its payload."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome
from redrive.transport import Closing, Recall, Recalling, Shape, Shaping, Transport

__all__ = ["ReshapedTransport"]


class ReshapedTransport:
    """Hands deliveries on with the body that their rule asks for, in the place of the payload."""

    def __init__(self, inner: Transport, shaping: Shaping) -> None:
        self.batch = inner.batch
        self._inner = inner
        self._shaping = shaping

    def recall_by(self, recall: Recall) -> None:
        """Hand on what asks the store, to a way that wants to know."""
        if isinstance(self._inner, Recalling):
            self._inner.recall_by(recall)

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        """Try each once, in its shape."""
        outcomes: list[Outcome | None] = []
        handed_on: list[Leased] = []
        for one in deliveries:
            shaped = await self._shaping.shape(one) if one.rule else Shape()
            if isinstance(shaped, Shape):
                handed_on.append(_carrying(one, shaped.body))
                outcomes.append(None)
            else:
                outcomes.append(shaped)
        answers = iter(await self._inner.send(handed_on) if handed_on else ())
        return [next(answers) if one is None else one for one in outcomes]

    async def close(self) -> None:
        """Let go of what the way holds open."""
        if isinstance(self._inner, Closing):
            await self._inner.close()


def _carrying(leased: Leased, body: bytes | None) -> Leased:
    if body is None:
        return leased
    try:
        payload = msgspec.Raw(msgspec.json.encode(msgspec.json.decode(body)))
    except msgspec.DecodeError:  # a text
        payload = msgspec.Raw(msgspec.json.encode(body.decode()))
    return msgspec.structs.replace(
        leased, event=msgspec.structs.replace(leased.event, payload=payload)
    )
