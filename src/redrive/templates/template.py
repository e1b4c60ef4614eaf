"""Templates: what a request says, made of an event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from redrive.errors import ConfigurationError, RenderError
from redrive.templates.expressions import KnownNames, compile_expression, is_path
from redrive.templates.names import EVENT_NAMES
from redrive.templates.parsing import LONGEST, Node, Parser
from redrive.templates.rendering import DEEPEST, LARGEST, Rendering
from redrive.templates.statements import compile_statements
from redrive.templates.values import OMIT

__all__ = ["Form", "Template", "compile_template"]

Form = Literal["structured", "text"]
Make = Callable[[Rendering], Any]

_KEPT = 1_024


class Template:
    """A template that was read and checked, to be rendered as often as wanted, on any thread."""

    __slots__ = ("_make", "form", "source")

    def __init__(self, source: object, form: Form, make: Make) -> None:
        self.source = source
        self.form = form
        self._make = make

    def render(self, context: Mapping[str, object]) -> Any:  # noqa: ANN401 - a JSON value
        """Return the value that it makes of the names it is given, or the text.

        A name or field that is not there raises `MissingFieldError`, and whatever goes beyond the
        limits `RenderError`. Nothing but `context` goes in.
        """
        try:
            made = self._make(Rendering(context))
            if made is OMIT:
                raise RenderError("The whole template is omitted, so there is nothing to send.")
            _check_writable(made)
        except (RecursionError, MemoryError):
            raise RenderError("It would build something that JSON cannot hold.") from None
        return made

    def __repr__(self) -> str:
        return f"Template({self.form})"


def compile_template(
    source: object, *, form: Form = "structured", names: Iterable[str] = EVENT_NAMES
) -> Template:
    """Return a template, or say what is wrong with it and where.

    `source` is a text for the form `"text"`. For `"structured"` it is a JSON value whose texts
    are templates; one that is a single `{{ … }}` gives what it says, with its type. `names` are
    those that it may use. The same source is compiled once.

    >>> compile_template({"sum": "{{ payload.net * 2 }}"}).render({"payload": {"net": 21}})
    {'sum': 42}
    """
    if form == "text" and not isinstance(source, str):
        raise ConfigurationError(
            f"A template in the form of text is a {type(source).__name__}; write it as a string."
        )
    try:
        written = json.dumps(source, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"A template is a JSON value with templates as its texts, and this is none: {error}."
        ) from None
    if len(written) > LONGEST:
        raise ConfigurationError(
            f"A template has {len(written):,} letters, more than the limit of {LONGEST:,}."
        )
    return _compile(written, form, tuple(sorted(names)))


@lru_cache(maxsize=_KEPT)
def _compile(written: str, form: Form, names: tuple[str, ...]) -> Template:
    source = msgspec.json.decode(written)
    own = frozenset(names)
    scope = KnownNames(own, own)
    parser = Parser()
    if form == "text":
        return Template(source, form, _compile_text(parser.parse(source), scope))
    return Template(source, form, _Structure(parser, scope).compile(source, "", 0))


def _compile_text(body: list[Node], scope: KnownNames) -> Make:
    write = compile_statements(body, scope)

    def make(rendering: Rendering) -> str:
        out: list[str] = []
        write(rendering, out)
        return "".join(out)

    return make


class _Structure:
    """Makes a function of a JSON value whose texts are templates."""

    def __init__(self, parser: Parser, scope: KnownNames) -> None:
        self._parser = parser
        self._scope = scope

    def compile(self, source: object, where: str, depth: int) -> Make:
        if depth > DEEPEST:
            raise ConfigurationError(f"A template is nested more than {DEEPEST} levels deep.")
        match source:
            case str():
                return self._leaf(source, where)
            case dict():
                return self._object(source, where, depth)
            case list():
                return self._array(source, where, depth)
        return lambda _: source

    def _leaf(self, source: str, where: str) -> Make:
        if "{" not in source:
            return lambda _: source
        try:
            body = self._parser.parse(source)
            if len(body) == 1 and type(body[0]).__name__ == "Output":
                nodes = body[0].nodes
                if len(nodes) == 1 and type(nodes[0]).__name__ != "TemplateData":
                    return _within(where, _compile_typed(nodes[0], self._scope))
            return _within(where, _compile_text(body, self._scope))
        except ConfigurationError as error:
            raise (error.about(f"at {where}") if where else error) from None

    def _object(self, source: dict[str, Any], where: str, depth: int) -> Make:
        for name in source:
            if "{{" in name or "{%" in name:
                raise ConfigurationError(
                    f"The name of the field {name!r} has a template in it; only values have them."
                )
        fields = [
            (name, self.compile(one, f"{where}.{name}" if where else name, depth + 1))
            for name, one in source.items()
        ]

        def make(rendering: Rendering) -> dict[str, Any]:
            return {
                name: value for name, field in fields if (value := field(rendering)) is not OMIT
            }

        return make

    def _array(self, source: list[Any], where: str, depth: int) -> Make:
        items = [
            self.compile(one, f"{where}[{place}]", depth + 1) for place, one in enumerate(source)
        ]

        def make(rendering: Rendering) -> list[Any]:
            return [value for item in items if (value := item(rendering)) is not OMIT]

        return make


def _compile_typed(node: Node, scope: KnownNames) -> Make:
    expression = compile_expression(node, scope)
    plain = is_path(node)

    def make(rendering: Rendering) -> Any:  # noqa: ANN401 - a JSON value
        value = expression(rendering)
        if isinstance(value, range):
            rendering.spend(len(value))
            rendering.build_list(len(value))
            return list(value)
        if isinstance(value, dict | list):
            if plain:
                # What an event says does not hold itself, and this is ten times as fast.
                rendering.build(len(msgspec.json.encode(value)))
            else:
                rendering.weigh(value)
        elif isinstance(value, str):
            rendering.build(len(value))
        return value

    return make


def _within(where: str, make: Make) -> Make:
    if not where:
        return make

    def located(rendering: Rendering) -> Any:  # noqa: ANN401 - a JSON value
        try:
            return make(rendering)
        except RenderError as error:
            raise error.about(f"at {where}") from None

    return located


def _check_writable(made: object) -> None:
    """Refuse what JSON cannot hold, such as half a letter, or what is too large once written."""
    try:
        size = len(made.encode() if isinstance(made, str) else msgspec.json.encode(made))
    except (TypeError, ValueError):
        raise RenderError("It would build something that JSON cannot hold.") from None
    if size > LARGEST:
        raise RenderError(f"It would build more than {LARGEST:,} bytes.")
