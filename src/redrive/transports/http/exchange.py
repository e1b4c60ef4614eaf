"""What went over the wire and came back, written down for a person without a secret."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl, urlsplit

import msgspec

from redrive.model.outcome import Exchange
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.faults import Answer, origin_of
from redrive.transports.http.request import Request

__all__ = ["exchange_of"]

_BLANK = "[redacted]"
_TELLING = ("auth", "cookie", "credential", "key", "password", "secret", "session", "signature")
_MOST_HEADERS = 50
_LONGEST_VALUE = 500
_LONGEST_BODY = 2**16
_LONGEST_PLAIN_PART = 15
_MOST_DIGITS = 2
_LEAST_OF_A_SECRET = 4


def exchange_of(plan: HttpBlueprint, request: Request, answer: Answer | None = None) -> Exchange:
    """Return one exchange; without an answer, none came."""
    sent = Exchange(
        method=plan.method,
        url=_url(plan.url),
        headers=_headers(plan, request.headers.items()),
        size=len(request.body),
    )
    if answer is None:
        return sent
    body = answer.body[:_LONGEST_BODY]
    is_cut = len(body) >= min(plan.response_limit, _LONGEST_BODY)
    text = plan.redact(body.decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}"))
    return msgspec.structs.replace(
        sent,
        status=answer.status,
        reason=plan.redact(answer.reason),
        answer_headers=_headers(plan, answer.headers),
        body=_without_half_a_secret(plan, text) if is_cut else text,
        is_cut=is_cut,
    )


def _headers(plan: HttpBlueprint, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    shown: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        if lower not in shown and len(shown) >= _MOST_HEADERS:
            break
        if any(word in lower for word in _TELLING) or "token" in lower:
            shown[lower] = _BLANK
        elif lower == "location":
            shown[lower] = origin_of(value)
        else:
            plain = plan.redact(value).replace("\x00", "\N{REPLACEMENT CHARACTER}")
            earlier = f"{shown[lower]}, " if lower in shown else ""
            shown[lower] = f"{earlier}{plain}"[:_LONGEST_VALUE]
    return shown


def _url(url: str) -> str:
    """Return a URL with what may be a secret blanked: every value, and long parts of the path."""
    parts = urlsplit(url)
    path = "/".join(_part(one) for one in parts.path.split("/"))
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    query = "?" + "&".join(f"{name}={_BLANK}" for name in names) if names else ""
    return f"{parts.scheme}://{parts.netloc}{path}{query}"


def _part(text: str) -> str:
    digits = sum(one.isdigit() for one in text)
    is_plain = len(text) <= _LONGEST_PLAIN_PART and digits <= _MOST_DIGITS
    return text if is_plain else _BLANK


def _without_half_a_secret(plan: HttpBlueprint, text: str) -> str:
    """Where an answer was cut, it may end in the beginning of a secret, which nothing blanks."""
    for secret in plan.secrets:
        for length in range(len(secret) - 1, _LEAST_OF_A_SECRET - 1, -1):
            if text.endswith(secret[:length]):
                return text[:-length]
    return text
