"""Editing: give a dead letter another payload, with what was changed, by whom and why."""

from __future__ import annotations

import msgspec

from redrive.errors import EditConflictError, UsageError
from redrive.model.edit import Change
from redrive.operations.context import with_reason
from redrive.operations.looking import Looking, Story
from redrive.policies.difference import difference
from redrive.policies.payload import check_size, encode_payload
from redrive.policies.redact import BLANK

__all__ = ["Editing"]


class Editing(Looking):
    """Change what a dead letter carries; its event stays as it was published."""

    async def edit(
        self,
        delivery_id: int,
        payload: object,
        *,
        by: str,
        why: str,
        replay: bool = True,
        mark: str | None = None,
    ) -> Story:
        """Give a dead letter another payload and, unless told otherwise, send it again.

        Every later try of this delivery carries it, with the same event id and idempotency key;
        other destinations of the event do not. What `show` has blanked may stay blanked: such a
        place keeps what it holds. With the `mark` of the story that was looked at, it is refused
        if somebody has changed it since. Returns its story, with what was changed.
        """
        actor = with_reason(by, why, "edit")
        store = await self._to_change()
        told = await self._tell(delivery_id)
        if mark not in (None, told.mark):
            raise _changed(delivery_id)
        encoded = self._encode(told, payload)
        changes, more = self._changes(told, encoded)
        is_done = await store.edit(
            told.delivery.id,
            before=told.carried,
            payload=msgspec.Raw(encoded),
            changes=changes,
            more=more,
            actor=actor,
            is_replayed=replay,
            scope=self._scope,
        )
        after = await self.show(delivery_id)
        if not is_done:
            raise _changed(delivery_id)
        self._done("edit", [told.delivery.id], actor)
        if replay:
            self._done("replay", [told.delivery.id], actor)
        return after

    async def preview_edit(self, delivery_id: int, payload: object) -> tuple[Change, ...]:
        """Return what an edit would change, without changing anything."""
        told = await self._tell(delivery_id)
        changes, _ = self._changes(told, self._encode(told, payload))
        return tuple(map(self._redaction.change, changes))

    def _encode(self, told: Story, payload: object) -> bytes:
        encoded = encode_payload(payload)
        if BLANK.encode() in encoded:
            given = msgspec.json.decode(encoded)
            encoded = encode_payload(self._redaction.put_back(given, told.payload))
        check_size(encoded, self._payload_limit, what=f"delivery {told.delivery.id}")
        return encoded

    def _changes(self, told: Story, encoded: bytes) -> tuple[tuple[Change, ...], int]:
        if not told.delivery.is_dead_letter:
            raise UsageError(
                f"Delivery {told.delivery.id} is {_condition(told)}; only a dead letter that "
                "nobody has resolved can be edited."
            )
        return difference(told.payload, msgspec.json.decode(encoded))


def _changed(delivery_id: int) -> EditConflictError:
    return EditConflictError(
        f"Delivery {delivery_id} was changed by somebody else meanwhile and is left as it is; "
        "look at it again."
    )


def _condition(told: Story) -> str:
    delivery = told.delivery
    return delivery.status.replace("_", " ") if delivery.resolution is None else "resolved"
