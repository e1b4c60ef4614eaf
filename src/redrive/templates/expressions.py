"""Expressions: the parts of a template that have a value, made into functions, node by node.

What is not in the table at the end is refused. No value has methods or attributes of Python's:
a field is looked up in an object, and what can be called is in a table of ours.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from redrive.errors import ConfigurationError, MissingFieldError, RenderError, refuse_unknown
from redrive.templates.checks import CHECKS
from redrive.templates.filters import FILTERS
from redrive.templates.methods import METHODS, make_range
from redrive.templates.parsing import Node
from redrive.templates.rendering import Rendering
from redrive.templates.signature import Signature
from redrive.templates.values import (
    OMIT,
    are_equal,
    compare,
    items_of,
    kind_of,
    look_up,
    number,
    spell,
    whole,
)

__all__ = ["Evaluate", "KnownNames", "compile_expression", "is_path", "refuse"]

Evaluate = Callable[[Rendering], Any]

_FURTHEST = 2**20
_RANGE = Signature(make_range, ("start", "stop", "step"), least=1)


class KnownNames:
    """The names that may be used where a node stands."""

    def __init__(self, known: frozenset[str], own: frozenset[str]) -> None:
        self.known = known
        self.own = own

    def within(self, *names: str) -> KnownNames:
        """Return the scope inside of something that brings names of its own."""
        return KnownNames(self.known | frozenset(names), self.own)


def refuse(node: Node, message: str) -> NoReturn:
    """Say where in the template something is wrong."""
    raise ConfigurationError(f"line {node.lineno}: {message}")


def compile_expression(node: Node, scope: KnownNames) -> Evaluate:
    """Return the function that works out an expression."""
    name = type(node).__name__
    compiler = _EXPRESSIONS.get(name)
    if compiler is None:
        refuse(node, f"{_spelled_kind(name)} is not among what templates can do.")
    return compiler(node, scope)


def is_path(node: Node) -> bool:
    """Tell whether it is a field of the event and nothing else, which cannot hold itself."""
    while type(node).__name__ in {"Getattr", "Getitem"}:
        if type(node).__name__ == "Getitem" and type(node.arg).__name__ != "Const":
            return False
        node = node.node
    return type(node).__name__ == "Name"


def _compile_name(node: Node, scope: KnownNames) -> Evaluate:
    name = node.name
    if name == "omit":
        return lambda _: OMIT
    if name not in scope.known:
        try:
            refuse_unknown((name,), sorted(scope.known), what="name")
        except ConfigurationError as error:
            refuse(node, str(error))

    def evaluate(rendering: Rendering) -> Any:  # noqa: ANN401 - a JSON value
        try:
            return rendering.names[name]
        except KeyError:
            raise MissingFieldError(f"{name} is not there.") from None

    return evaluate


def _compile_const(node: Node, _: KnownNames) -> Evaluate:
    value = node.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number(value)
        except RenderError as error:
            refuse(node, str(error))
    return lambda _: value


def _compile_getattr(node: Node, scope: KnownNames) -> Evaluate:
    if node.attr.startswith("_"):
        refuse(
            node,
            f"fields that begin with '_' are not reached by a dot; write [{node.attr!r}] "
            "for a field of that name.",
        )
    return _field(compile_expression(node.node, scope), node.attr, _path(node))


def _compile_getitem(node: Node, scope: KnownNames) -> Evaluate:
    inner = compile_expression(node.node, scope)
    kind = type(node.arg).__name__
    if kind == "Slice":
        return _compile_slice(inner, node.arg, scope)
    if kind == "Const":
        return _field(inner, node.arg.value, _path(node))
    key, where = compile_expression(node.arg, scope), _path(node)

    def evaluate(rendering: Rendering) -> Any:  # noqa: ANN401 - a JSON value
        name = key(rendering)
        if isinstance(name, str):
            rendering.read(name)
        return look_up(inner(rendering), name, where)

    return evaluate


def _field(inner: Evaluate, name: object, where: str) -> Evaluate:
    def evaluate(rendering: Rendering) -> Any:  # noqa: ANN401 - a JSON value
        value = inner(rendering)
        if type(value) is dict and name in value:
            return value[name]
        return look_up(value, name, where)

    return evaluate


def _compile_slice(inner: Evaluate, node: Node, scope: KnownNames) -> Evaluate:
    bounds = [
        None if one is None else compile_expression(one, scope)
        for one in (node.start, node.stop, node.step)
    ]

    def evaluate(rendering: Rendering) -> Any:  # noqa: ANN401 - a JSON value
        start, stop, step = (
            None if one is None else whole(one(rendering), "A slice", -_FURTHEST, _FURTHEST)
            for one in bounds
        )
        if step == 0:
            raise RenderError("A slice cannot go on by 0.")
        value = inner(rendering)
        if not isinstance(value, str | list | range):
            raise RenderError(f"A slice is taken of text or a list, and got {kind_of(value)}.")
        length = len(range(*slice(start, stop, step).indices(len(value))))
        if isinstance(value, str):
            rendering.build(length)
        else:
            rendering.spend(length)
            rendering.build_list(length)
        return value[start:stop:step]

    return evaluate


def _compile_call(node: Node, scope: KnownNames) -> Evaluate:
    callee = node.node
    match type(callee).__name__:
        case "Name" if callee.name == "range":
            return _apply(_RANGE, "range", None, node, scope)
        case "Getattr":
            name = callee.attr
            _check_known(node, name, METHODS, "method")
            inner = compile_expression(callee.node, scope)
            return _apply(METHODS[name], name, inner, node, scope)
    refuse(node, "only range(…) and the methods of a value, such as text.split(','), are called.")


def _compile_filter(node: Node, scope: KnownNames) -> Evaluate:
    if node.node is None:
        refuse(node, "a filter stands behind a value.")
    inner = compile_expression(node.node, scope)
    if node.name in {"default", "d"}:
        return _compile_default(inner, node, scope)
    _check_known(node, node.name, {**FILTERS, "default": None}, "filter")
    return _apply(FILTERS[node.name], node.name, inner, node, scope)


def _compile_default(inner: Evaluate, node: Node, scope: KnownNames) -> Evaluate:
    given, boolean = _arguments(_DEFAULT, node.name, node, scope)

    def evaluate(rendering: Rendering) -> Any:  # noqa: ANN401 - a JSON value
        try:
            value = inner(rendering)
        except MissingFieldError:
            return given(rendering)
        if not value and boolean is not None and boolean(rendering):
            return given(rendering)
        return value

    return evaluate


def _compile_test(node: Node, scope: KnownNames) -> Evaluate:
    inner = compile_expression(node.node, scope)
    if node.name in {"defined", "undefined"}:
        _arguments(_NO_ARGUMENTS, node.name, node, scope)
        expected = bool(node.name == "defined")

        def evaluate(rendering: Rendering) -> bool:
            try:
                inner(rendering)
            except MissingFieldError:
                return not expected
            return expected

        return evaluate
    _check_known(node, node.name, {**CHECKS, "defined": None, "undefined": None}, "test")
    return _apply(CHECKS[node.name], node.name, inner, node, scope)


def _apply(
    signature: Signature,
    name: str,
    inner: Evaluate | None,
    node: Node,
    scope: KnownNames,
) -> Evaluate:
    function = signature.function
    arguments = _arguments(signature, name, node, scope)
    if inner is None:
        return lambda rendering: function(
            rendering, *[None if one is None else one(rendering) for one in arguments]
        )
    if not any(arguments):
        nothing = [None] * len(arguments)
        return lambda rendering: function(rendering, inner(rendering), *nothing)
    return lambda rendering: function(
        rendering,
        inner(rendering),
        *[None if one is None else one(rendering) for one in arguments],
    )


def _arguments(signature: Signature, name: str, node: Node, scope: KnownNames) -> list[Any]:
    """Return an expression for each parameter, or `None` where nothing was given."""
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        refuse(node, f"{name} takes its arguments one by one, without * and **.")
    given = {
        parameter: compile_expression(one, scope)
        for parameter, one in zip(signature.parameters, node.args, strict=False)
    }
    for keyword in node.kwargs:
        if keyword.key in given or keyword.key not in signature.parameters:
            refuse(node, f"{name} takes {signature.described}, and got {keyword.key}=.")
        given[keyword.key] = compile_expression(keyword.value, scope)
    if len(node.args) > len(signature.parameters) or not set(given) >= set(
        signature.parameters[: signature.least]
    ):
        refuse(node, f"{name} takes {signature.described}.")
    return [given.get(parameter) for parameter in signature.parameters]


def _check_known(node: Node, name: str, known: Mapping[str, object], what: str) -> None:
    try:
        refuse_unknown((name,), sorted(known), what=what)
    except ConfigurationError as error:
        refuse(node, str(error))


def _compile_list(node: Node, scope: KnownNames) -> Evaluate:
    items = [compile_expression(one, scope) for one in node.items]

    def evaluate(rendering: Rendering) -> list[Any]:
        rendering.build_list(len(items))
        return [one(rendering) for one in items]

    return evaluate


def _compile_dict(node: Node, scope: KnownNames) -> Evaluate:
    pairs = [
        (compile_expression(one.key, scope), compile_expression(one.value, scope))
        for one in node.items
    ]

    def evaluate(rendering: Rendering) -> dict[str, Any]:
        rendering.build_list(4 * len(pairs))
        made = {}
        for key, value in pairs:
            name = key(rendering)
            if type(name) is not str:
                raise RenderError(f"The names of fields are text, and one is {kind_of(name)}.")
            made[name] = value(rendering)
        return made

    return evaluate


def _compile_concat(node: Node, scope: KnownNames) -> Evaluate:
    parts = [compile_expression(one, scope) for one in node.nodes]

    def evaluate(rendering: Rendering) -> str:
        spelled = [spell(rendering, one(rendering)) for one in parts]
        rendering.build(sum(map(len, spelled)))
        return "".join(spelled)

    return evaluate


def _compile_add(node: Node, scope: KnownNames) -> Evaluate:
    left, right = compile_expression(node.left, scope), compile_expression(node.right, scope)

    def evaluate(rendering: Rendering) -> Any:  # noqa: ANN401 - a JSON value
        one, other = left(rendering), right(rendering)
        if type(one) is str and type(other) is str:
            rendering.build(len(one) + len(other))
            return one + other
        if isinstance(one, list) and isinstance(other, list):
            rendering.spend(len(one) + len(other))
            rendering.build_list(len(one) + len(other))
            return one + other
        if type(one) is str or type(other) is str:
            raise RenderError(
                f"+ got {kind_of(one)} and {kind_of(other)}; ~ puts text and numbers together."
            )
        return number(number(one, "+") + number(other, "+"), "+")

    return evaluate


def _compile_arithmetic(
    sign: str, calculate: Callable[[Any, Any], Any]
) -> Callable[[Any, KnownNames], Evaluate]:
    def compile_node(node: Node, scope: KnownNames) -> Evaluate:
        left, right = compile_expression(node.left, scope), compile_expression(node.right, scope)

        def evaluate(rendering: Rendering) -> int | float:
            one, other = number(left(rendering), sign), number(right(rendering), sign)
            try:
                return number(calculate(one, other), sign)
            except ZeroDivisionError:
                raise RenderError(f"{sign} cannot divide by 0.") from None
            except OverflowError:
                raise RenderError(f"{sign} has a result that is too large.") from None

        return evaluate

    return compile_node


def _compile_sign(change: Callable[[Any], Any]) -> Callable[[Any, KnownNames], Evaluate]:
    def compile_node(node: Node, scope: KnownNames) -> Evaluate:
        inner = compile_expression(node.node, scope)
        return lambda rendering: change(number(inner(rendering), "A sign"))

    return compile_node


def _compile_compare(node: Node, scope: KnownNames) -> Evaluate:
    first = compile_expression(node.expr, scope)
    rest = [(_COMPARISONS[one.op], compile_expression(one.expr, scope)) for one in node.ops]
    if len(rest) == 1:
        [(only, second)] = rest
        return lambda rendering: only(rendering, first(rendering), second(rendering))

    def evaluate(rendering: Rendering) -> bool:
        left = first(rendering)
        for holds, expression in rest:
            right = expression(rendering)
            if not holds(rendering, left, right):
                return False
            left = right
        return True

    return evaluate


def _is_in(rendering: Rendering, needle: object, value: object) -> bool:
    if isinstance(value, str):
        if type(needle) is not str:
            raise RenderError(f"in looks for text in text, and got {kind_of(needle)}.")
        rendering.read(value)
        rendering.read(needle)
        return needle in value
    if isinstance(value, dict):
        return type(needle) is str and needle in value
    items = items_of(rendering, value, "in")
    rendering.spend(len(items))
    return any(are_equal(rendering, needle, one) for one in items)


_COMPARISONS: dict[str, Callable[[Rendering, Any, Any], bool]] = {
    "eq": are_equal,
    "ne": lambda rendering, left, right: not are_equal(rendering, left, right),
    "lt": lambda rendering, left, right: compare(rendering, left, right) < 0,
    "lteq": lambda rendering, left, right: compare(rendering, left, right) <= 0,
    "gt": lambda rendering, left, right: compare(rendering, left, right) > 0,
    "gteq": lambda rendering, left, right: compare(rendering, left, right) >= 0,
    "in": _is_in,
    "notin": lambda rendering, left, right: not _is_in(rendering, left, right),
}


def _compile_and(node: Node, scope: KnownNames) -> Evaluate:
    left, right = compile_expression(node.left, scope), compile_expression(node.right, scope)
    return lambda rendering: left(rendering) and right(rendering)


def _compile_or(node: Node, scope: KnownNames) -> Evaluate:
    left, right = compile_expression(node.left, scope), compile_expression(node.right, scope)
    return lambda rendering: left(rendering) or right(rendering)


def _compile_not(node: Node, scope: KnownNames) -> Evaluate:
    inner = compile_expression(node.node, scope)
    return lambda rendering: not inner(rendering)


def _compile_choice(node: Node, scope: KnownNames) -> Evaluate:
    if node.expr2 is None:
        refuse(node, "an if within an expression needs an else: what is it otherwise?")
    test, one, other = (
        compile_expression(part, scope) for part in (node.test, node.expr1, node.expr2)
    )
    return lambda rendering: one(rendering) if test(rendering) else other(rendering)


def _path(node: Node) -> str:
    """Write a field as the template does."""
    match type(node).__name__:
        case "Name":
            return str(node.name)
        case "Getattr":
            return f"{_path(node.node)}.{node.attr}"
        case "Getitem" if type(node.arg).__name__ == "Const":
            return f"{_path(node.node)}[{node.arg.value!r}]"
        case "Getitem":
            return f"{_path(node.node)}[…]"
    return "(…)"


def _spelled_kind(name: str) -> str:
    return {
        "Pow": "** (a power)",
        "NSRef": "namespace",
        "TemplateReference": "self",
    }.get(name, name)


_DEFAULT = Signature(lambda *_: None, ("default_value", "boolean"), least=1)
_NO_ARGUMENTS = Signature(lambda *_: None, ())

_EXPRESSIONS: Mapping[str, Callable[[Any, KnownNames], Evaluate]] = {
    "Add": _compile_add,
    "And": _compile_and,
    "Call": _compile_call,
    "Compare": _compile_compare,
    "Concat": _compile_concat,
    "CondExpr": _compile_choice,
    "Const": _compile_const,
    "Dict": _compile_dict,
    "Div": _compile_arithmetic("/", operator.truediv),
    "Filter": _compile_filter,
    "FloorDiv": _compile_arithmetic("//", operator.floordiv),
    "Getattr": _compile_getattr,
    "Getitem": _compile_getitem,
    "List": _compile_list,
    "Mod": _compile_arithmetic("%", operator.mod),
    "Mul": _compile_arithmetic("*", operator.mul),
    "Name": _compile_name,
    "Neg": _compile_sign(operator.neg),
    "Not": _compile_not,
    "Or": _compile_or,
    "Pos": _compile_sign(operator.pos),
    "Sub": _compile_arithmetic("-", operator.sub),
    "Test": _compile_test,
    "Tuple": _compile_list,
}
"""What may stand in an expression; everything else is refused."""
