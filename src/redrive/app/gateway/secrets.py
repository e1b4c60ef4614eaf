"""References to secrets: a document says where one is, and never what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

__all__ = ["Resolve", "is_reference", "placeholder", "references_in"]

Resolve = Callable[[str], str]
"""Returns the secret that a reference stands for."""

_KINDS = ("env:", "file:", "secret:")


def is_reference(value: object) -> bool:
    """Tell whether a value says where a secret is."""
    return isinstance(value, str) and value.startswith(_KINDS)


def references_in(value: object) -> Iterator[str]:
    """Return the references in a document."""
    if isinstance(value, dict):
        for one in value.values():
            yield from references_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from references_in(one)
    elif isinstance(value, str) and is_reference(value):
        yield value


def placeholder(reference: str) -> str:
    """Stand in for a secret where a document is only checked."""
    return "whsec_" + "c2VjcmV0" * 4 if reference else ""
