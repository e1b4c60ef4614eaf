"""Payload: what can be carried as JSON, how much of it, and how deep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from redrive.errors import ConfigurationError, PayloadError

__all__ = [
    "DEEPEST",
    "check_payload",
    "check_size",
    "encode_payload",
    "encode_payloads",
    "payload_decoder",
]

DEEPEST = 200
"""How many lists and objects a payload may have within each other, whoever reads it."""

_NOT_FINITE = b"null"


def check_size(payload: bytes, limit: int, *, what: str) -> None:
    """Refuse a payload that is larger than the limit."""
    if len(payload) > limit:
        raise PayloadError(
            f"The payload of {what} is {len(payload):,} bytes of JSON, more than the limit of "
            f"{limit:,}. Store the large part elsewhere and publish a reference to it, or raise "
            "payload_limit."
        )


def check_payload(payload: bytes | msgspec.Raw) -> None:
    """Refuse what a worker, or any other reader, could not decode again."""
    try:
        value = msgspec.json.decode(payload)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # what msgspec raises, and bytes that are no UTF-8
        raise _not_json(error) from error
    # Most payloads have fewer brackets than that, whatever they are about.
    if _has_many_brackets(bytes(payload)) and _is_too_deep(value):
        raise _too_deep()


def encode_payload(payload: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Return a payload as JSON that can be read back, or say why it cannot be one."""
    try:
        encoded = msgspec.json.encode(payload, enc_hook=_encode_model)
    except RecursionError as error:
        raise _too_deep() from error
    except (TypeError, ValueError, OverflowError) as error:
        raise _not_json(error) from error
    check_payload(encoded)  # a `msgspec.Raw` within it was taken over as it is
    _check_finite(payload, encoded)
    return encoded


def encode_payloads(payloads: Sequence[Any]) -> Sequence[bytes] | None:
    """Return many payloads as JSON that can be read back, for less than one by one.

    `None` if one of them needs a closer look, which `encode_payload` takes.
    """
    try:
        text = _encoder.encode_lines(payloads)
        lines = text.split(b"\n")
        lines.pop()  # behind the last of them there is nothing
        if len(lines) != len(payloads):  # a `msgspec.Raw` brought a line break along
            return None
        for one in lines:
            value = _decode(one)
            if len(one) > DEEPEST and _has_many_brackets(one) and _is_too_deep(value):
                return None
        if _NOT_FINITE in text:
            for payload, one in zip(payloads, lines, strict=True):
                _check_finite(payload, one)
    except (RecursionError, TypeError, ValueError, OverflowError, PayloadError):
        return None
    return lines


def payload_decoder(wanted: Any, *, who: str) -> Callable[[msgspec.Raw], Any]:  # noqa: ANN401 - a type form
    """Return what reads a payload as the type that somebody asks for."""
    validate_json = getattr(wanted, "model_validate_json", None)
    if validate_json is not None:
        return lambda raw: validate_json(bytes(raw))
    try:
        if isinstance(msgspec.inspect.type_info(wanted), msgspec.inspect.CustomType):
            raise TypeError("it is an ordinary class")  # noqa: TRY301 - one place says what to do
        return msgspec.json.Decoder(wanted).decode
    except TypeError as error:
        raise ConfigurationError(
            f"{who} asks for a payload of type {wanted!r}, which cannot be read from JSON "
            f"({error}); use a dataclass, a msgspec Struct or a pydantic model."
        ) from error


def _encode_model(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return None  # JSON as it is, which has no number that JSON does not have
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


_encoder = msgspec.json.Encoder(enc_hook=_encode_model)
_decode = msgspec.json.Decoder().decode


def _check_finite(payload: object, encoded: bytes) -> None:
    """Refuse not-a-number and infinity, which become null: only where there is one at all."""
    if _NOT_FINITE in encoded and _has_infinite(
        msgspec.to_builtins(payload, enc_hook=_encode_model)
    ):
        raise PayloadError(
            "The payload holds a number that JSON does not have (NaN or infinity). "
            "Publish null or text instead."
        )


def _has_many_brackets(encoded: bytes) -> bool:
    return encoded.count(b"[") + encoded.count(b"{") > DEEPEST


def _is_too_deep(value: object) -> bool:
    """Tell by going down level by level: a recursion would have a limit of its own."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        if not level:
            return False
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


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


def _too_deep() -> PayloadError:
    return PayloadError(
        f"The payload has lists or objects within each other, more than {DEEPEST} levels deep, "
        "or it holds itself. Make it flatter, or send the deep part as text."
    )


def _not_json(error: Exception) -> PayloadError:
    return PayloadError(
        f"The payload is not JSON: {error}. Publish dicts, lists, text, numbers, booleans and "
        "null, or a dataclass, msgspec Struct or pydantic model made of them."
    )
