"""Filter: which tracked events are worth keeping when they could not simply be sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.event import Severity
from redrive.model.pattern import check_pattern, matches

__all__ = ["OVER_RETRY_RATE", "Filter", "Saved", "Saving", "TypePatterns"]

OVER_RETRY_RATE = "over_retry_rate"
"""The reason for which nothing is kept unless somebody says so."""
_REGULAR = "re:"


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """What `save_if` is asked about: an event that would be kept, why, and of what it may judge.

    `reason` is `rate_limited`, `failed`, `held`, `full`, `tracking_failed` or `over_retry_rate`.
    """

    reason: str
    type: str
    severity: Severity
    key: str | None = None
    tenant: str | None = None


class Saved(StrEnum):
    """What a filter says of an event."""

    KEEP = "keep"
    DROP = "drop"
    DROP_TWICE = "drop_twice"
    """It is to be dropped, though another pattern says that it is always kept."""


class TypePatterns:
    """Types of events by name, by glob, or by a regular expression after `re:`; asked by type.

    Regular expressions are those of RE2, which take one pass over the text, whatever they say;
    they need `redrive[gateway]`.
    """

    def __init__(self, patterns: Sequence[str], *, name: str) -> None:
        if isinstance(patterns, str) or not all(isinstance(one, str) for one in patterns):
            raise ConfigurationError(
                f'{name} is {patterns!r}; it is a list of patterns, such as ["debug.*"].'
            )
        self._globs = [check_pattern(one) for one in patterns if not one.startswith(_REGULAR)]
        self._expressions = [
            _compiled(one.removeprefix(_REGULAR), name=name)
            for one in patterns
            if one.startswith(_REGULAR)
        ]
        self._remembered: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._globs or self._expressions)

    def fits(self, event_type: str) -> bool:
        """Tell whether one of them fits; types are few, so that each is looked at once."""
        known = self._remembered.get(event_type)
        if known is None:
            known = any(matches(one, event_type) for one in self._globs) or any(
                one.fullmatch(event_type) is not None for one in self._expressions
            )
            if len(self._remembered) < 10_000:  # noqa: PLR2004 - somebody puts ids into types
                self._remembered[event_type] = known
        return known


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    r"""Which tracked events are worth keeping; what was published is kept whatever it says.

    `never_save` and `always_save` are patterns of types: a name, a glob such as `debug.*`, or a
    regular expression such as `re:debug\\\\..*`. What fits both is never kept, and counted. Of all
    others `save_if` decides, and without it they are kept, unless they are to be dropped above a
    rate of retries.
    """

    never_save: tuple[str, ...] = ()
    always_save: tuple[str, ...] = ()
    save_if: Callable[[Saving], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("never_save", "always_save"):
            given = getattr(self, name)
            TypePatterns(given, name=name)
            msgspec.structs.force_setattr(self, name, tuple(given))
        if both := sorted(set(self.never_save) & set(self.always_save)):
            raise ConfigurationError(
                f"The pattern {both[0]!r} is in never_save and in always_save, so nobody can tell "
                "what is meant; leave it in one of them."
            )
        if self.save_if is not None and not callable(self.save_if):
            raise ConfigurationError(
                f"save_if is {self.save_if!r}; pass a function that takes a Saving and says "
                "whether the event is kept."
            )

    def ready(self) -> Callable[[Saving], Saved]:
        """Return what decides, with its patterns read."""
        never = TypePatterns(self.never_save, name="never_save")
        always = TypePatterns(self.always_save, name="always_save")
        save_if = self.save_if

        def decide(saving: Saving) -> Saved:
            if never and never.fits(saving.type):
                return Saved.DROP_TWICE if always.fits(saving.type) else Saved.DROP
            if always and always.fits(saving.type):
                return Saved.KEEP
            if save_if is None:
                return Saved.DROP if saving.reason == OVER_RETRY_RATE else Saved.KEEP
            return Saved.KEEP if _asked(save_if, saving) else Saved.DROP

        return decide


def _asked(save_if: Callable[[Saving], bool], saving: Saving) -> bool:
    """Ask a function of somebody else's; one that fails does not cost an event."""
    try:
        return bool(save_if(saving))
    except Exception:  # noqa: BLE001 - whatever it raises
        return True


def _compiled(expression: str, *, name: str) -> Any:  # noqa: ANN401 - RE2 comes without types
    try:
        import re2  # noqa: PLC0415 - only who uses it pays
    except ImportError as error:
        raise ConfigurationError(
            f"{name} has the regular expression {expression!r}, which needs "
            "`pip install redrive[gateway]`; a glob such as order.* does not."
        ) from error
    try:
        return re2.compile(expression)
    except re2.error as error:
        raise ConfigurationError(
            f"{name} has {expression!r}, which RE2 does not take as a regular expression: {error}."
        ) from error
