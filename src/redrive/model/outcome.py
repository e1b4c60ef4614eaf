"""Outcomes: what a transport answers after one attempt."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.duration import Duration, duration

if TYPE_CHECKING:
    from redrive.model.delivery import Leased

__all__ = [
    "CALL",
    "Addressees",
    "Applied",
    "Cancel",
    "Exchange",
    "Fault",
    "Faulted",
    "Interrupted",
    "Nature",
    "Outcome",
    "Snooze",
    "Succeeded",
]


CALL = "call"
"""The method of an exchange with a handler: its body is what the handler returned, as JSON."""


class Nature(StrEnum):
    """Whether trying again may help."""

    TRANSIENT = "transient"
    TERMINAL = "terminal"
    THROTTLED = "throttled"


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One failure, captured: bounded text, safe to store. `rule` says what classified it.

    A message that says nothing is replaced by one that says so. The fault of a dead letter has the
    id of its `group`, and the `title` all of its group share.
    """

    error_class: str
    message: str
    rule: str
    code: str = ""
    stack: str = ""
    group: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        if not self.message.strip():
            name = self.error_class.rpartition(".")[2] or "A failure"
            msgspec.structs.force_setattr(self, "message", f"{name} without a message")


class Exchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was sent in one attempt and what came back.

    What only the destination's declaration knows, such as a token, is blanked before it gets here.
    `sent` is the body of the request, `size` how many bytes it has; `body` is that of the answer.
    Of each, as text, there is the beginning; `is_sent_cut` and `is_cut` say that there was more.
    `status` is `None` when no answer came.
    """

    method: str
    url: str
    headers: dict[str, str]
    size: int
    status: int | None = None
    reason: str = ""
    answer_headers: dict[str, str] = {}
    body: str = ""
    is_cut: bool = False
    sent: str = ""
    is_sent_cut: bool = False


class Addressees(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who of several that one delivery is for has answered for good.

    Those who have `accepted` it do not get it again; `refused` says why, of each who never will.
    """

    accepted: tuple[str, ...] = ()
    refused: dict[str, str] = {}

    def knows(self, who: str) -> bool:
        """Tell whether this one needs not be asked again."""
        return who in self.accepted or who in self.refused

    @property
    def is_empty(self) -> bool:
        """Whether nobody has answered for good."""
        return not self.accepted and not self.refused


class Succeeded(msgspec.Struct, frozen=True):
    """The destination took it; `exchange` is what it answered, if that is to be kept.

    `code` is how it says so, where there is a log of requests to tell it. Where nothing was to be
    sent, `is_sent` is false, and nothing is known of the destination.
    """

    exchange: Exchange | None = None
    code: str = ""
    is_sent: bool = True


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The handler's effect and the settlement were committed together; nothing is left to settle.

    `is_repeat` says that the effect had been applied before, and that nothing was run now.
    `followers` are deliveries behind it in its lane that were applied and settled with it.
    """

    is_repeat: bool = False
    followers: tuple[Leased, ...] = ()


class Interrupted(msgspec.Struct, frozen=True, kw_only=True):
    """What the handler did was undone, or may have been, and not by its own fault."""

    fault: Fault


class Faulted(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt failed. `retry_after` is the least wait the destination asked for.

    `is_for_all` says that it asked it of everybody, not just of this delivery. `pause` is why
    nothing more should be sent there until a person says so, if nothing should; `exchange` is what
    was sent and answered, where the transport can tell. `addressees` are those of several who have
    answered for good, in earlier tries too.
    """

    fault: Fault
    nature: Nature
    retry_after: timedelta | None = None
    is_for_all: bool = False
    pause: str = ""
    exchange: Exchange | None = None
    addressees: Addressees | None = None


class Snooze(msgspec.Struct, frozen=True):
    """Return it from a handler: not now, try again after this long; spends no attempt.

    >>> Snooze("5m").wait
    datetime.timedelta(seconds=300)
    """

    wait: Duration

    def __post_init__(self) -> None:
        read = duration(self.wait, name="Snooze", longest=timedelta.max)
        msgspec.structs.force_setattr(self, "wait", read)

    @property
    def span(self) -> timedelta:
        """The wait as a `timedelta`."""
        return duration(self.wait, longest=timedelta.max)


class Cancel(msgspec.Struct, frozen=True):
    """Return it from a handler: this must not be delivered any more, and why."""

    why: str

    def __post_init__(self) -> None:
        if not isinstance(self.why, str) or not self.why:
            raise ConfigurationError(
                f"The reason of Cancel is {self.why!r}; say why in a few words."
            )


Outcome = Succeeded | Applied | Interrupted | Faulted | Snooze | Cancel
