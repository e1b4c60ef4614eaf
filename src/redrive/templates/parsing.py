"""Parsing: jinja2 reads the text of a template; what it would run never runs."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigurationError
from redrive.templates.rendering import DEEPEST

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["LONGEST", "Node", "Parser"]

Node = Any
"""A node of jinja2's, known by the name of its class: jinja2 is an extra."""

LONGEST = 2**16
"""How many letters a template may have."""
MOST_PARTS = 8_000
"""How many names, signs, numbers and pieces of text a template may have."""

_DEEPEST_TREE = 100
_PARTS_OF_A_TEXT = 10
"""What it takes to read any text at all."""
_BEGINS = {"variable_begin", "block_begin"}
_ENDS = {"variable_end", "block_end"}
_NESTED = {"If", "For", "With"}


class Parser:
    """Reads the texts of one template, which together may have so many parts and no more."""

    def __init__(self) -> None:
        self._environment = _environment()
        self._parts = 0

    def parse(self, source: str) -> list[Node]:
        """Return what a text is made of, or say where it cannot be read."""
        from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - it is an extra

        try:
            self._check(source)
            template = self._environment.parse(source)
        except TemplateSyntaxError as error:
            raise ConfigurationError(f"line {error.lineno}: {_sentence(error.message)}") from None
        except RecursionError:
            raise _too_deep() from None
        except (ValueError, OverflowError):
            raise ConfigurationError("A template has a number that is too large.") from None
        _check_tree(template)
        body: list[Node] = template.body
        return body

    def _check(self, source: str) -> None:
        """Refuse what is deep or has many parts, before a parser goes down into it."""
        depth = signs = choices = 0
        self._parts += _PARTS_OF_A_TEXT
        for _, kind, value in self._environment.lex(source):
            self._parts += 1
            if self._parts > MOST_PARTS:
                raise ConfigurationError(
                    f"A template has more than {MOST_PARTS:,} names, signs and pieces of text; "
                    "make several of it."
                )
            if kind == "operator" and value in "([{":
                depth += 1
            elif kind == "operator" and value in ")]}":
                depth -= 1
            elif kind in _BEGINS or kind in _ENDS:
                depth = choices = 0
            if kind == "name" and value == "else":
                choices += 1
            if kind == "whitespace":
                continue
            is_sign = (kind == "operator" and value in "+-") or (kind == "name" and value == "not")
            signs = signs + 1 if is_sign else 0
            if max(depth, signs, choices) > DEEPEST:
                raise _too_deep()


@lru_cache(maxsize=1)
def _environment() -> Environment:
    if find_spec("jinja2") is None:
        raise ConfigurationError(
            "Templates need jinja2, which is not installed; "
            "install it with: pip install 'redrive[gateway]'"
        )
    from jinja2 import Environment  # noqa: PLC0415 - it is an extra

    return Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 - it makes no HTML


def _check_tree(template: Node) -> None:
    """Go down level by level: a recursion would have a limit of its own."""
    level = [(one, 0) for one in template.iter_child_nodes()]
    for _ in range(_DEEPEST_TREE):
        if not level:
            return
        level = [
            (child, blocks + (type(child).__name__ in _NESTED))
            for node, blocks in level
            for child in node.iter_child_nodes()
        ]
        if any(blocks >= DEEPEST for _, blocks in level):
            raise _too_deep()
    if level:
        raise _too_deep()


def _too_deep() -> ConfigurationError:
    return ConfigurationError(
        f"A template is nested more than {DEEPEST} levels deep; "
        "make it flatter, or give what is within a name with {% set %}."
    )


def _sentence(message: str | None) -> str:
    said = (message or "it cannot be read").rstrip(".")
    return f"{said}."
