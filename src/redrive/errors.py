"""Every error Redrive raises, in one tree.

RedriveError
├── UsageError                    you: what was asked for cannot be done as asked
│   ├── ConfigurationError        an option, a duration, a pattern or a declaration is wrong
│   ├── PayloadError              the payload is not JSON, or larger than the limit
│   ├── IdempotencyConflictError  the same idempotency key came with another body
│   ├── EditConflictError         somebody else has changed the dead letter meanwhile
│   ├── TransactionError          `within=` got something Redrive cannot write into
│   ├── NotFoundError             no such delivery, destination or application
│   ├── DeniedError               who asks may not do that, or not give it
│   └── LoginThrottledError       too many have tried to log in with this name
├── RenderError                   a template cannot be rendered with this event
│   └── MissingFieldError         it asks for a field that is not there
├── ConditionError                a condition cannot be decided for this event
├── BufferFullError               too much was tracked at once, and it is to be raised
├── SecretError                   a secret that is referred to cannot be had here
├── RequestError                  a destination was asked, and gave no answer that counts
│   └── RequestRefusedError       it was not asked: its gate lets nothing through
├── DeliveryFailedError           the delivery whose result somebody waits for has failed
├── ResultTimeoutError            it has not ended within the time; also a TimeoutError
└── StoreError                    the store: nothing was changed unless the message says so
    ├── StoreUnavailableError     cannot be opened or reached, is locked, or went away
    │   ├── StoreReadOnlyError    can be read, but not written
    │   └── ServerError           a server of ours was not reached, or could not do it
    ├── StoreFullError            the disk is full
    ├── JournalError              the journal's files cannot be written or read
    ├── VersionConflictError      the key of an event was not at the version expected
    ├── StoreCorruptError         the file is damaged, or not a Redrive store
    └── SchemaError               the schema is outside the range this version works with

Terminal, Transient and Throttled are no members: a handler raises them to say what kind of failure
it met, and they become an outcome. They never reach a caller.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import datetime
from typing import Self

__all__ = [
    "BufferFullError",
    "ConditionError",
    "ConfigurationError",
    "DeliveryFailedError",
    "DeniedError",
    "EditConflictError",
    "IdempotencyConflictError",
    "JournalError",
    "LoginThrottledError",
    "MissingFieldError",
    "NotFoundError",
    "PayloadError",
    "RedriveError",
    "RenderError",
    "RequestError",
    "RequestRefusedError",
    "ResultTimeoutError",
    "SchemaError",
    "SecretError",
    "ServerError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "Terminal",
    "Throttled",
    "TransactionError",
    "Transient",
    "UsageError",
    "VersionConflictError",
    "not_found",
    "refuse_unknown",
]


class RedriveError(Exception):
    """The base of every error Redrive raises at a caller."""


class UsageError(RedriveError):
    """What was asked for cannot be done as asked; nothing was stored."""

    def about(self, what: str) -> Self:
        """Return the same error, said of one thing among many."""
        return type(self)(f"{what}: {self}")


class ConfigurationError(UsageError):
    """An option, a duration, a pattern or a declaration is wrong."""


class PayloadError(UsageError):
    """The payload is not JSON, or is larger than the limit; nothing was stored."""


class IdempotencyConflictError(UsageError):
    """The same source and idempotency key were published before, with another body: `event_id`."""

    def __init__(self, message: str, *, event_id: str = "") -> None:
        super().__init__(message)
        self.event_id = event_id


class EditConflictError(UsageError):
    """Somebody else has changed the dead letter since it was looked at; it is left as it is."""


class TransactionError(UsageError):
    """`within=` cannot be joined, or a write went past an open transaction."""


class NotFoundError(UsageError):
    """No such delivery, destination or application."""


class DeniedError(UsageError):
    """Who asks may not do that, or would give more than they have."""


class LoginThrottledError(UsageError):
    """Too many have tried to log in with this name; `until` is when the next may."""

    def __init__(self, message: str, *, until: datetime | None = None) -> None:
        super().__init__(message)
        self.until = until


class RenderError(RedriveError):
    """A template cannot be rendered with this event; trying again would not help."""

    def about(self, what: str) -> Self:
        """Return the same error, said of one part of a template."""
        return type(self)(f"{what}: {self}")


class MissingFieldError(RenderError):
    """A template asks for a field that the event does not have; the message names it."""


class ConditionError(RedriveError):
    """A condition cannot be decided for this event; the rule says what becomes of it."""


class BufferFullError(RedriveError):
    """The buffer of tracked events is full, and the event was not taken."""


class SecretError(RedriveError):
    """A secret that is referred to is not there, or its key is not; nothing was changed."""


class RequestError(RedriveError):
    """A destination gave no answer to a request, in so many `attempts`."""

    def __init__(self, message: str, *, service: str = "", attempts: int = 0) -> None:
        super().__init__(message)
        self.service = service
        self.attempts = attempts


class RequestRefusedError(RequestError):
    """The gate of a destination lets nothing through; it was not asked.

    `hold` says why, such as `breaker_open`, and `until` when that may change, if it is known.
    """

    def __init__(
        self, message: str, *, service: str = "", hold: str = "", until: datetime | None = None
    ) -> None:
        super().__init__(message, service=service)
        self.hold = hold
        self.until = until


class DeliveryFailedError(RedriveError):
    """The delivery whose result somebody waits for is a dead letter, or was resolved."""


class ResultTimeoutError(RedriveError, TimeoutError):
    """The delivery whose result somebody waits for has not ended within the time; it goes on."""


class StoreError(RedriveError):
    """The store could not do it."""


class StoreUnavailableError(StoreError):
    """The store cannot be opened or reached, is locked, or went away."""


class StoreReadOnlyError(StoreUnavailableError):
    """The store can be read, but not written."""


class ServerError(StoreUnavailableError):
    """A server that stands before the store was not reached, did not answer, or could not do it.

    `status` is that of its answer, if there was one.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class JournalError(StoreError):
    """The files of the journal cannot be written, or not be read; the message says what is left."""


class StoreFullError(StoreError):
    """The disk under the store is full; nothing of the call was stored."""


class VersionConflictError(StoreError):
    """Somebody else has published to the key meanwhile; nothing was stored.

    Read what they have published, decide anew, and publish with the `actual` version.
    """

    def __init__(self, key: str, *, expected: int, actual: int, what: str = "") -> None:
        super().__init__(key, expected, actual)
        self.key = key
        self.expected = expected
        self.actual = actual
        self._what = what

    def about(self, what: str) -> Self:
        """Return the same error, said of one thing among many."""
        return type(self)(self.key, expected=self.expected, actual=self.actual, what=f"{what}: ")

    def __str__(self) -> str:
        return (
            f"{self._what}The key {self.key!r} is at version {self.actual}, not {self.expected} as "
            "expected; nothing was stored. Look at what was published to it, and try again with "
            "its version."
        )


class StoreCorruptError(StoreError):
    """The file is damaged, or is not a Redrive store."""


class SchemaError(StoreError):
    """The store's schema is outside the range this version of Redrive works with."""


class Terminal(Exception):  # noqa: N818 - a verdict a handler raises, not an error of ours
    """Raise it in a handler: trying again cannot help; the delivery fails at once."""


class Transient(Exception):  # noqa: N818 - a verdict a handler raises, not an error of ours
    """Raise it in a handler: this may heal; the delivery is retried by its retry policy.

    `retry_after` (a duration such as `"30s"`) asks for at least that wait.
    """

    def __init__(self, *args: object, retry_after: object = None) -> None:
        super().__init__(*args)
        self.retry_after = retry_after


class Throttled(Exception):  # noqa: N818 - a verdict a handler raises, not an error of ours
    """Raise it in a handler: what it calls asks for less; the whole destination waits.

    It spends no attempt and is no failure to the breaker. `retry_after` (a duration such as
    `"30s"`) is how long nothing is sent; without it the wait grows from one time to the next.
    """

    def __init__(self, *args: object, retry_after: object = None) -> None:
        super().__init__(*args)
        self.retry_after = retry_after


def refuse_unknown(names: Iterable[str], known: Iterable[str], *, what: str) -> None:
    """Raise for the first name that is not known, with the nearest one that is."""
    choices = tuple(known)
    for name in names:
        if name not in choices:
            raise ConfigurationError(_suggestion(name, choices, what=what))


def not_found(name: str, known: Iterable[str], *, what: str) -> NotFoundError:
    """Return the error for a name that is not known, with the nearest one that is."""
    return NotFoundError(_suggestion(name, tuple(known), what=what))


def _suggestion(name: str, choices: tuple[str, ...], *, what: str) -> str:
    if not choices:
        return f"There is no {what} {name!r}, and no other either."
    close = difflib.get_close_matches(str(name), choices, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(choices)}."
    return f"There is no {what} {name!r}; {hint}"
