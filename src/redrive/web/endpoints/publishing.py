"""Publishing from any language."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from redrive.model.event import Receipt
from redrive.web.answers import Receipts
from redrive.web.problem import ProblemError
from redrive.web.published import PublishBatch, PublishEvent
from redrive.web.route import Call

__all__ = ["publish", "publish_batch"]


async def publish(call: Call, given: PublishEvent) -> Receipt:
    """Publish an event; it and its deliveries are durable when this answers.

    With the header `Idempotency-Key`, or `idempotency_key` in the body, it may be repeated: the
    same key from the same source stores once, and answers with the first receipt.
    """
    key = given.idempotency_key
    if call.idempotency_key is not None:
        if key not in (None, call.idempotency_key):
            raise ProblemError(
                HTTPStatus.BAD_REQUEST,
                "bad-request",
                "The header Idempotency-Key and idempotency_key of the body differ; give one.",
            )
        if not call.idempotency_key.isascii():
            raise ProblemError(
                HTTPStatus.BAD_REQUEST,
                "bad-request",
                "The header Idempotency-Key has letters that headers spell in more than one way; "
                "write the key into the body, as idempotency_key.",
            )
        key = call.idempotency_key
    source, tenant = _allowed(call, given)
    attributes = given.attributes(source=source, tenant=tenant, key=key)
    receipt = await call.app.publish(given.type, given.payload, **attributes)
    return _told(receipt) if call.caller.is_limited else receipt


async def publish_batch(call: Call, given: PublishBatch) -> Receipts:
    """Publish up to 1,000 events, all of them or none; keys of idempotency are in the body."""
    if call.idempotency_key is not None:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST,
            "bad-request",
            "The header Idempotency-Key is of one event; in a batch, each has its own "
            "idempotency_key.",
        )
    now, own = call.now, call.caller.source
    if call.caller.is_limited:
        allowed = [_allowed(call, one) for one in given.events]
    else:
        allowed = [(own if one.source is None else one.source, one.tenant) for one in given.events]
    receipts = await call.app.publish_many(
        [
            one.event(source=source, tenant=tenant, key=one.idempotency_key, now=now)
            for one, (source, tenant) in zip(given.events, allowed, strict=True)
        ]
    )
    return Receipts([_told(one) for one in receipts] if call.caller.is_limited else receipts)


def _allowed(call: Call, given: PublishEvent) -> tuple[str, str | None]:
    """Return the source and the tenant of an event, if its caller may publish it."""
    tenant, source = given.tenant, given.source
    if call.caller.is_limited:
        tenant = call.narrow(tenant=tenant)["tenant"]
        _refuse_shared(given)
        _refuse_source(call, source)
    return call.caller.source if source is None else source, tenant


def _refuse_source(call: Call, source: str | None) -> None:
    """Refuse somebody else's source, within which their keys of idempotency count."""
    own = call.caller.source
    if source not in (None, own) and not str(source).startswith(f"{own}/"):
        raise ProblemError(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            f"The source of what you publish is {own!r}, or begins with {own + '/'!r}; "
            "leave it out.",
        )


def _refuse_shared(given: PublishEvent) -> None:
    """Refuse what is counted over all tenants, and so would tell of others."""
    for name in ("expected_version", "unique_by"):
        if getattr(given, name) is not None:
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "forbidden",
                f"{name} is counted over all tenants, and you may act for one only; leave it out.",
            )


def _told(receipt: Receipt) -> Receipt:
    """Leave out what is counted over all tenants."""
    return msgspec.structs.replace(receipt, version=None)
