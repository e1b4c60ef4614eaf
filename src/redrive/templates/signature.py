"""Signatures: the filters, methods and tests of templates, with the arguments that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Signature"]


class Signature:
    """A function that a template may use, the names of its arguments, and how many it needs.

    It is called with what is rendered, the value that it stands behind, and each argument, `None`
    for what was not given.
    """

    __slots__ = ("function", "least", "parameters")

    def __init__(
        self, function: Callable[..., Any], parameters: tuple[str, ...] = (), *, least: int = 0
    ) -> None:
        self.function = function
        self.parameters = parameters
        self.least = least

    @property
    def described(self) -> str:
        """Say what arguments it takes."""
        if not self.parameters:
            return "no arguments"
        needed, further = self.parameters[: self.least], self.parameters[self.least :]
        return f"({', '.join([*needed, *(f'{one}=…' for one in further)])})"
