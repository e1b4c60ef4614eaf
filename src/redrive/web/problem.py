"""Problems: what an answer says when something was not done, as RFC 9457 has it."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from redrive.errors import (
    DeniedError,
    EditConflictError,
    IdempotencyConflictError,
    NotFoundError,
    SecretError,
    StoreError,
    UsageError,
    VersionConflictError,
)
from redrive.policies.display import safe
from redrive.policies.redact import Redaction

__all__ = [
    "MEDIA_TYPE",
    "Problem",
    "ProblemError",
    "VersionConflict",
    "not_there",
    "problem_of",
]

MEDIA_TYPE = "application/problem+json"
_USUAL = Redaction()
_LONGEST = 2_000


class VersionConflict(msgspec.Struct, frozen=True, kw_only=True):
    """The key of an event that was not at the version expected, and at which it is."""

    key: str
    expected: int
    actual: int


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why something was not done, and what to do about it.

    `type` is a word for programs, `detail` a sentence for people. `conflict` is there if somebody
    else has published to the key meanwhile.
    """

    type: str
    title: str
    status: int
    detail: str
    conflict: VersionConflict | None = None


class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(self, status: HTTPStatus, kind: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.conflict: VersionConflict | None = None

    @property
    def problem(self) -> Problem:
        """What is answered."""
        return Problem(
            type=self.kind,
            title=self.status.phrase,
            status=self.status,
            detail=safe(_USUAL.text(self.detail[:_LONGEST])),
            conflict=self.conflict,
        )


def problem_of(error: Exception, *, is_limited: bool) -> ProblemError:
    """Return what to answer instead of an error.

    Whoever is limited to a part of the store is not told the names of the rest, which sentences
    about what is not there suggest.
    """
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, NotFoundError) and is_limited:
        return not_there()
    for kind, status, word in _CALLERS:
        if isinstance(error, kind):
            refused = ProblemError(status, word, str(error))
            if isinstance(error, VersionConflictError):
                refused.conflict = VersionConflict(
                    key=error.key, expected=error.expected, actual=error.actual
                )
            return refused
    if isinstance(error, StoreError):
        return ProblemError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "store-unavailable",
            "The store could not do it; the log of the server says why. Try again later.",
            retry_after="1",
        )
    if isinstance(error, TimeoutError):
        return ProblemError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "timeout",
            "It took longer than a request may. What it was to change may have been changed: "
            "look before you try again.",
        )
    return ProblemError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal-error",
        "This should not happen; the log of the server says what did.",
    )


_CALLERS = (
    (NotFoundError, HTTPStatus.NOT_FOUND, "not-found"),
    (DeniedError, HTTPStatus.FORBIDDEN, "forbidden"),
    (VersionConflictError, HTTPStatus.CONFLICT, "version-conflict"),
    (IdempotencyConflictError, HTTPStatus.CONFLICT, "idempotency-conflict"),
    (EditConflictError, HTTPStatus.PRECONDITION_FAILED, "edit-conflict"),
    (SecretError, HTTPStatus.CONFLICT, "secret-unavailable"),
    (UsageError, HTTPStatus.BAD_REQUEST, "bad-request"),
)
"""What callers can do something about, the special before the general."""


def not_there() -> ProblemError:
    """Return the problem of what is not there, or not for this caller: nobody can tell which."""
    return ProblemError(
        HTTPStatus.NOT_FOUND, "not-found", "It is not there, or it is not yours to see."
    )
