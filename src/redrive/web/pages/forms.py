"""Forms: only a page of this server can send one, because only it knows the token within."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.requests import Request

from redrive.web.api import read_body
from redrive.web.cookies import FORM, SESSION, read_cookie
from redrive.web.problem import ProblemError

__all__ = ["TOKEN_BYTES", "form_token", "read_form"]

TOKEN_BYTES = 16
_KIND = "application/x-www-form-urlencoded"
_LONGEST = 64 * 1024
_MOST_FIELDS = 50


def form_token(request: Request, *, in_session: bool) -> str:
    """Return what a form of this browser has to carry; nothing, if it was given no token yet.

    In a session it is made from the secret of that, so that no form outlives it. Else it is in a
    cookie of its own.
    """
    if in_session:
        secret = read_cookie(request, SESSION).encode()
        return hmac.digest(secret, b"a form of this session", "sha256").hex()
    token = read_cookie(request, FORM)
    return token if len(token) == 2 * TOKEN_BYTES else ""


async def read_form(
    request: Request, *, in_session: bool, longest: int = _LONGEST
) -> dict[str, str]:
    """Return the fields of a form, if it is one of ours."""
    body = await read_body(request, longest, kind=_KIND)
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST, "bad-request", "The form cannot be read; load the page again."
        ) from None
    # Whatever lines of a text end with, browsers send both characters.
    form = {name: value.replace("\r\n", "\n") for name, value in pairs}
    given, expected = form.get("token", ""), form_token(request, in_session=in_session)
    is_ours = bool(expected) and hmac.compare_digest(given.encode(), expected.encode())
    if len(form) < len(pairs) or not is_ours:
        raise ProblemError(
            HTTPStatus.FORBIDDEN,
            "forged",
            "Nothing was done: the form does not come from a page that this server has shown you. "
            "Load the page again, with cookies allowed, and repeat it there.",
        )
    return form
