"""Cookies: by which names browsers keep what this server tells them, and for whom."""

from __future__ import annotations

from zlib import crc32

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["FORM", "SAID", "SESSION", "drop_cookie", "read_cookie", "root_of", "set_cookie"]

FORM, SESSION, SAID = "form", "session", "said"
"""What a form carries; who has logged in; what was just done, for the next page to say."""


def read_cookie(request: Request, kind: str) -> str:
    """Return what the browser keeps, or nothing."""
    return request.cookies.get(_name(request, kind), "")


def set_cookie(
    request: Request, response: Response, kind: str, value: str, *, seconds: int | None = None
) -> None:
    """Have the browser keep it, for so long or until it ends.

    No script sees it, and no other site sends it.
    """
    response.set_cookie(
        _name(request, kind),
        value,
        max_age=seconds,
        path=_path(request),
        secure=_is_secure(request),
        httponly=True,
        samesite="lax",
    )


def drop_cookie(request: Request, response: Response, kind: str) -> None:
    """Have the browser forget it."""
    response.delete_cookie(
        _name(request, kind),
        path=_path(request),
        secure=_is_secure(request),
        httponly=True,
        samesite="lax",
    )


def root_of(request: Request) -> str:
    """Return the path below which the server is."""
    return str(request.scope.get("root_path", ""))


def _name(request: Request, kind: str) -> str:
    """Return the name of a cookie.

    With TLS browsers take `__Host-` from this very host alone, whatever its neighbours try. It is
    for all paths, so those of servers below several paths have different names. Without TLS, as at
    127.0.0.1, browsers do not know that prefix.
    """
    root = root_of(request)
    if not _is_secure(request):
        return f"redrive-{kind}"
    return f"__Host-redrive-{kind}" + (f"-{crc32(root.encode()):08x}" if root else "")


def _path(request: Request) -> str:
    return "/" if _is_secure(request) else root_of(request) or "/"


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"
