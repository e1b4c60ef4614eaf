"""What went over the wire and came back, written down for a person without a secret."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from redrive.model.outcome import Exchange
from redrive.policies.redact import BLANK, Redaction, without_half
from redrive.transport import Answer
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.faults import origin_of
from redrive.transports.http.request import Request

__all__ = ["exchange_of"]

_RULE = Redaction()
_MOST_HEADERS = 50
_LONGEST_VALUE = 500
_LONGEST_BODY = 2**16


def exchange_of(plan: HttpBlueprint, request: Request, answer: Answer | None = None) -> Exchange:
    """Return one exchange; without an answer, none came."""
    shown = request.body if request.shown is None else request.shown()
    sent = Exchange(
        method=request.method,
        url=_RULE.url(request.url),
        headers=_headers(plan, request.headers.items()),
        size=len(request.body),
        sent=_text(shown[:_LONGEST_BODY]),
        is_sent_cut=len(shown) > _LONGEST_BODY,
    )
    if answer is None:
        return sent
    body = answer.body[:_LONGEST_BODY]
    is_cut = len(body) >= min(plan.response_limit, _LONGEST_BODY)
    text = plan.redact(_text(body))
    return msgspec.structs.replace(
        sent,
        status=answer.status,
        reason=plan.redact(answer.reason),
        answer_headers=_headers(plan, answer.headers),
        body=without_half(text, plan.secrets) if is_cut else text,
        is_cut=is_cut,
    )


def _headers(plan: HttpBlueprint, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    shown: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        if lower not in shown and len(shown) >= _MOST_HEADERS:
            break
        if _RULE.hides(lower):
            shown[lower] = BLANK
        elif lower == "location":
            shown[lower] = origin_of(value)
        else:
            plain = plan.redact(value.replace("\x00", "\N{REPLACEMENT CHARACTER}"))
            earlier = f"{shown[lower]}, " if lower in shown else ""
            shown[lower] = f"{earlier}{plain}"[:_LONGEST_VALUE]
    return shown


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
