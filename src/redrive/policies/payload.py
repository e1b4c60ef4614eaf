"""Payload: what can be carried as JSON, and how much of it."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from redrive.errors import PayloadError

__all__ = ["check_size", "encode_payload"]

_NOT_FINITE = b"null"


def check_size(payload: bytes, limit: int, *, what: str) -> None:
    """Refuse a payload that is larger than the limit."""
    if len(payload) > limit:
        raise PayloadError(
            f"The payload of {what} is {len(payload):,} bytes of JSON, more than the limit of "
            f"{limit:,}. Store the large part elsewhere and publish a reference to it, or raise "
            "payload_limit."
        )


def encode_payload(payload: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Return a payload as JSON, or say why it cannot be one."""
    try:
        if isinstance(payload, msgspec.Raw):
            msgspec.json.decode(payload)
        encoded = msgspec.json.encode(payload, enc_hook=_encode_model)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise PayloadError(
            f"The payload is not JSON: {error}. Publish dicts, lists, text, numbers, booleans and "
            "null, or a dataclass, msgspec Struct or pydantic model made of them."
        ) from error
    # Not-a-number and infinity become null: look closer only when there is a null at all.
    if _NOT_FINITE in encoded and _has_infinite(
        msgspec.to_builtins(payload, enc_hook=_encode_model)
    ):
        raise PayloadError(
            "The payload holds a number that JSON does not have (NaN or infinity). "
            "Publish null or text instead."
        )
    return encoded


def _encode_model(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


def _has_infinite(value: object) -> bool:
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(_has_infinite(one) for one in value.values())
        case list() | tuple():
            return any(_has_infinite(one) for one in value)
        case _:
            return False
