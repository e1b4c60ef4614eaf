"""Recipients: a destination, or a destination by one of its rules, as text.

`crm` is the destination, `crm/orders@3` the same by the third version of the rule `orders`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["destination_of", "is_given", "pin_of", "pinned", "recipient", "split_pin"]


def recipient(destination: str, pin: str = "") -> str:
    """Return how a destination is named, by a pinned rule if there is one."""
    return f"{destination}/{pin}" if pin else destination


def destination_of(recipient: str) -> str:
    """Return the destination of a recipient."""
    return recipient.partition("/")[0]


def pin_of(recipient: str) -> str:
    """Return the pinned rule of a recipient, such as `orders@3`; empty if it has none."""
    return recipient.partition("/")[2]


def pinned(rule: str, version: int) -> str:
    """Return how a version of a rule is named."""
    return f"{rule}@{version}"


def split_pin(pin: str) -> tuple[str, int]:
    """Return the rule and the version that are pinned."""
    rule, _, version = pin.rpartition("@")
    return rule, int(version)


def is_given(recipient: str, names: Collection[str]) -> bool:
    """Tell whether a recipient is among these, whichever version of its rule it was then."""
    if recipient in names:
        return True
    rule = recipient.partition("@")[0]
    return rule != recipient and rule in _without_versions(names)


def _without_versions(names: Iterable[str]) -> set[str]:
    return {one.partition("@")[0] for one in names if "@" in one}
