"""Statements: the parts of a template that write text, made into functions, node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from redrive.errors import RenderError
from redrive.templates.expressions import Evaluate, KnownNames, compile_expression, refuse
from redrive.templates.parsing import Node
from redrive.templates.rendering import Rendering
from redrive.templates.values import items_of, kind_of, spell

__all__ = ["Write", "compile_statements", "operations_of"]

Write = Callable[[Rendering, list[str]], None]

_LOOP = 7
"""The fields of `loop`."""
_COSTLY = {
    **dict.fromkeys(("Add", "Div", "FloorDiv", "Mod", "Mul", "Output", "Sub", "Test"), 2),
    "Concat": 3,
    **dict.fromkeys(("Call", "Filter"), 4),
}
"""What takes longer than other nodes."""


def compile_statements(body: Sequence[Node], scope: KnownNames) -> Write:
    """Return the function that writes what statements say, one after the other."""
    parts: list[Write] = []
    for node in body:
        name = type(node).__name__
        compiler = _STATEMENTS.get(name)
        if compiler is None:
            refuse(
                node, f"{{% {_TAGS.get(name, name.lower())} %}} is not among what templates can do."
            )
        part, scope = compiler(node, scope)
        parts.append(part)
    if len(parts) == 1:
        return parts[0]

    def write(rendering: Rendering, out: list[str]) -> None:
        for part in parts:
            part(rendering, out)

    return write


def operations_of(nodes_: Sequence[Node]) -> int:
    """Count what one time through these nodes takes; loops within them count for themselves."""
    count, left = 0, list(nodes_)
    while left:
        node = left.pop()
        count += _COSTLY.get(type(node).__name__, 1)
        if type(node).__name__ != "For":
            left += node.iter_child_nodes()
    return count


def _compile_output(node: Node, scope: KnownNames) -> tuple[Write, KnownNames]:
    parts = [_compile_piece(one, scope) for one in node.nodes]
    if len(parts) == 1:
        return parts[0], scope

    def write(rendering: Rendering, out: list[str]) -> None:
        for part in parts:
            part(rendering, out)

    return write, scope


def _compile_piece(node: Node, scope: KnownNames) -> Write:
    if type(node).__name__ == "TemplateData":
        data: str = node.data

        def write_data(rendering: Rendering, out: list[str]) -> None:
            rendering.build(len(data))
            out.append(data)

        return write_data
    expression = compile_expression(node, scope)

    def write(rendering: Rendering, out: list[str]) -> None:
        piece = spell(rendering, expression(rendering))
        rendering.build(len(piece))
        out.append(piece)

    return write


def _compile_if(node: Node, scope: KnownNames) -> tuple[Write, KnownNames]:
    branches = [
        (compile_expression(one.test, scope), compile_statements(one.body, scope))
        for one in (node, *node.elif_)
    ]
    otherwise = compile_statements(node.else_, scope)
    added = _assigned_in(
        [*node.body, *(line for one in node.elif_ for line in one.body), *node.else_]
    )

    def write(rendering: Rendering, out: list[str]) -> None:
        for test, body in branches:
            if test(rendering):
                body(rendering, out)
                return
        otherwise(rendering, out)

    return write, scope.within(*added)


def _compile_for(node: Node, scope: KnownNames) -> tuple[Write, KnownNames]:
    if node.recursive:
        refuse(node, "loops do not call themselves; leave out 'recursive'.")
    targets = _targets(node.target, scope)
    has_loop = _uses(node.body, "loop")
    inside = scope.within(*targets, *(["loop"] if has_loop else []))
    iterable = compile_expression(node.iter, scope)
    test = None if node.test is None else compile_expression(node.test, inside)
    body = compile_statements(node.body, inside)
    otherwise = compile_statements(node.else_, scope)
    operations = operations_of([*node.body, *([] if node.test is None else [node.test])])
    operations += len(targets) + (_LOOP if has_loop else 0)
    assigns = bool(_assigned_in(node.body))

    def write(rendering: Rendering, out: list[str]) -> None:
        values: Any = iterable(rendering)
        if not isinstance(values, range):
            values = items_of(rendering, values, "A loop")
        outside = rendering.names
        rendering.spend(len(outside))
        rendering.names = dict(outside)
        if test is not None:
            values = _kept(rendering, values, targets, test, operations)
        length = len(values)
        for index, value in enumerate(values):
            rendering.step(operations)
            if assigns:
                rendering.spend(len(outside) // 2)
                rendering.names = dict(outside)
            _assign(rendering, targets, value)
            if has_loop:
                rendering.names["loop"] = {
                    "index": index + 1,
                    "index0": index,
                    "revindex": length - index,
                    "revindex0": length - index - 1,
                    "first": index == 0,
                    "last": index == length - 1,
                    "length": length,
                }
            body(rendering, out)
        rendering.names = outside
        if not length:
            otherwise(rendering, out)

    return write, scope


def _kept(
    rendering: Rendering,
    values: Sequence[Any],
    targets: Sequence[str],
    test: Evaluate,
    operations: int,
) -> list[Any]:
    """Return those elements that a loop's own `if` lets through."""
    kept = []
    for value in values:
        rendering.step(operations)
        _assign(rendering, targets, value)
        if test(rendering):
            rendering.build_list(1)
            kept.append(value)
    return kept


def _compile_set(node: Node, scope: KnownNames) -> tuple[Write, KnownNames]:
    targets = _targets(node.target, scope)
    expression = compile_expression(node.node, scope)

    def write(rendering: Rendering, _: list[str]) -> None:
        _assign(rendering, targets, expression(rendering))

    return write, scope.within(*targets)


def _compile_with(node: Node, scope: KnownNames) -> tuple[Write, KnownNames]:
    values = [
        (_targets(target, scope), compile_expression(value, scope))
        for target, value in zip(node.targets, node.values, strict=True)
    ]
    body = compile_statements(node.body, scope.within(*(n for names, _ in values for n in names)))

    def write(rendering: Rendering, out: list[str]) -> None:
        outside = rendering.names
        rendering.spend(len(outside))
        given = [(targets, expression(rendering)) for targets, expression in values]
        rendering.names = dict(outside)
        for targets, value in given:
            _assign(rendering, targets, value)
        body(rendering, out)
        rendering.names = outside

    return write, scope


def _targets(node: Node, scope: KnownNames) -> tuple[str, ...]:
    kind = type(node).__name__
    if kind == "Tuple":
        parts = [_targets(one, scope) for one in node.items]
        if any(len(one) != 1 for one in parts) or len(parts) == 1:
            refuse(node, "names are taken apart one level deep: for name, value in ….")
        return tuple(one for [one] in parts)
    if kind != "Name":
        refuse(node, "only names are set, and namespace is not among what templates can do.")
    name: str = node.name
    if name in scope.own or name in {"omit", "loop", "range"} or name.startswith("_"):
        refuse(node, f"{name!r} cannot be set: it means something already; choose another name.")
    return (name,)


def _assign(rendering: Rendering, targets: Sequence[str], value: Any) -> None:  # noqa: ANN401 - a JSON value
    if len(targets) == 1:
        rendering.names[targets[0]] = value
        return
    if not isinstance(value, list) or len(value) != len(targets):
        raise RenderError(
            f"{', '.join(targets)} are set by a list of {len(targets)}, and got {kind_of(value)}."
        )
    rendering.names.update(zip(targets, value, strict=True))


def _walk(body: Sequence[Node], *, into_loops: bool) -> Iterator[Node]:
    left = list(body)
    while left:
        node = left.pop()
        yield node
        if into_loops or type(node).__name__ not in {"For", "With"}:
            left += node.iter_child_nodes()


def _assigned_in(body: Sequence[Node]) -> list[str]:
    """Return the names that statements set for those behind them."""
    found = []
    for node in _walk(body, into_loops=False):
        if type(node).__name__ == "Assign":
            target = node.target
            names = target.items if type(target).__name__ == "Tuple" else [target]
            found += [one.name for one in names if type(one).__name__ == "Name"]
    return found


def _uses(body: Sequence[Node], name: str) -> bool:
    return any(
        type(node).__name__ == "Name" and node.name == name for node in _walk(body, into_loops=True)
    )


_TAGS = {
    "AssignBlock": "set without =",
    "CallBlock": "call",
    "ExprStmt": "do",
    "FilterBlock": "filter",
    "FromImport": "from",
    "ScopedEvalContextModifier": "autoescape",
    "Scope": "autoescape",
}

_STATEMENTS: Mapping[str, Callable[[Any, KnownNames], tuple[Write, KnownNames]]] = {
    "Assign": _compile_set,
    "For": _compile_for,
    "If": _compile_if,
    "Output": _compile_output,
    "With": _compile_with,
}
"""What may stand between {% and %}; everything else is refused."""
