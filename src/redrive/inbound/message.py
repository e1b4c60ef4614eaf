"""Messages: what somebody has sent to a source, before anybody believes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

__all__ = ["Message"]


class Message(NamedTuple):
    """The headers of a request by their lower-case names, and its body as it came.

    A header that stands there twice has two meanings, so it is taken for one that is missing.
    """

    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, headers: Iterable[tuple[str, str]], body: bytes) -> Self:
        """Return the message of a request."""
        found: dict[str, list[str]] = {}
        for name, value in headers:
            found.setdefault(name.lower(), []).append(value)
        return cls({name: values[0] for name, values in found.items() if len(values) == 1}, body)

    def header(self, name: str) -> str:
        """Return the value of a header, and nothing for one that is missing."""
        return self.headers.get(name, "").strip()
