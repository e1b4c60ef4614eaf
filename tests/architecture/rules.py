"""The house rules: each reads source text and finds what breaks it."""

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "src" / "redrive"
VAGUE_NAMES = ("base", "common", "helper", "helpers", "manager", "managers", "util", "utils")

FAKE_TIME = (
    "redrive.testing.FakeClock",
    "redrive.testing.Kit",
    "redrive.testing.clock.FakeClock",
    "tests.simulation.bugs.bug.Bug",
)

AMBIENT_MODULES = ("random", "secrets", "time", "uuid", "uuid_utils")
AMBIENT_NAMES = (
    "asyncio.sleep",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os.urandom",
)


class Finding(NamedTuple):
    line: int
    what: str


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def within_engine(path: Path) -> str:
    return path.relative_to(ENGINE).as_posix()


def module_name(path: Path) -> str:
    parts = path.relative_to(ENGINE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def exports(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return [str(name) for name in ast.literal_eval(value)]
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value):
                return [str(name) for name in ast.literal_eval(value)]
    return None


def export_order(name: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Sort constants, then classes, then the rest, and numbers by value, as ruff does."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    runs = re.findall(r"\d+|\D", name)
    return kind, tuple((ord("0"), int(run)) if run.isdigit() else (ord(run), 0) for run in runs)


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Map each local name to what it was imported from; imports for annotations only do not run."""
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for statement in node.body
        for inner in ast.walk(statement)
    }
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        match node:
            case ast.Import():
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            case ast.ImportFrom(module=str(module), level=0):
                names |= {
                    alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names
                }
    return names


def origin(node: ast.AST, names: Mapping[str, str]) -> str:
    """Spell out where a dotted expression comes from, or nothing if it was not imported."""
    match node:
        case ast.Name(id=name):
            return names.get(name, "")
        case ast.Attribute(value=value, attr=attr) if owner := origin(value, names):
            return f"{owner}.{attr}"
    return ""


def last_word(node: ast.AST) -> str:
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word):
            return word
        case ast.Call(func=func):
            return last_word(func)
    return ""


def ambient_uses(tree: ast.Module) -> Iterator[Finding]:
    """Find time, chance, ids and waiting that do not come through a port."""
    names = imported_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")]):
                name = f"{module}.*"
            case ast.Attribute(value=value, attr="time") if last_word(value).endswith("loop"):
                name = "loop.time"
            case _:
                name = origin(node, names)
        module, _, member = name.partition(".")
        ambient = name in AMBIENT_NAMES or (member and module in AMBIENT_MODULES)
        if ambient or name == "loop.time":
            yield Finding(getattr(node, "lineno", 0), name)


def is_set(node: ast.AST) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Name(id="list" | "tuple" | "iter" | "enumerate"), args=[first, *_]):
            return is_set(first)
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return is_set(left) or is_set(node.right)
    return False


def set_iterations(tree: ast.Module) -> Iterator[Finding]:
    """Find loops whose order Python does not promise."""
    for node in ast.walk(tree):
        match node:
            case ast.For(iter=source) | ast.AsyncFor(iter=source) | ast.comprehension(iter=source):
                if is_set(source):
                    yield Finding(source.lineno, ast.unparse(source))


def sleeps(tree: ast.Module) -> Iterator[Finding]:
    """Find waiting for the clock on the wall: a port's `clock.sleep` is that, too, if it is real.

    Letting others run, by a sleep of 0, is not; nor is a sleep where all time is a fake's.
    """
    names = imported_names(tree)
    is_fake = any(name in FAKE_TIME for name in names.values())
    has_real_time = not is_fake or "redrive.clock.SystemClock" in names.values()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = origin(node.func, names) or last_word(node.func)
        given = [*node.args, *(one.value for one in node.keywords)]
        is_sleep = called in {"asyncio.sleep", "time.sleep"} or (
            last_word(node.func) == "sleep"
            and (isinstance(node.func, ast.Name) or (has_real_time and not _is_nothing(given)))
        )
        waits = bool(given) and _waits_in_vain(node.func, names)
        if is_sleep or waits or any(_waits_in_vain(one, names) for one in given):
            yield Finding(node.lineno, called)


def _is_nothing(given: list[ast.expr]) -> bool:
    return len(given) == 1 and isinstance(given[0], ast.Constant) and given[0].value == 0


def _waits_in_vain(node: ast.AST, names: Mapping[str, str]) -> bool:
    """Tell whether somebody waits for an event that was just made, so that nobody can set it."""
    match node:
        case ast.Attribute(value=ast.Call(func=made), attr="wait"):
            return origin(made, names) == "threading.Event"
    return False


def blanket_ignores(source: str) -> Iterator[Finding]:
    """Find comments that silence the type checker without saying which error they mean."""
    if not re.search(r"type:\s*ignore(?!\[)", source):
        return  # to take every source apart takes seconds
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and re.search(r"#\s*type:\s*ignore(?!\[)", token.string):
            yield Finding(token.start[0], token.string)


def vague_parts(relative: Path) -> list[str]:
    return [part for part in relative.with_suffix("").parts if part.strip("_") in VAGUE_NAMES]


def machine_paths(text: str) -> list[str]:
    return re.findall(r"(?<![\w.~-])/(?:work|root|home/\w+|Users/\w+)/[^\s\"'`)]*", text)


def glossary_terms() -> list[str]:
    """The words of the glossary, as a class of that name is written."""
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    return [
        "".join(map(str.capitalize, term.split()))
        for term in re.findall(r"(?m)^\*\*(.+?)\.\*\*", text)
    ]


def homes(names: Iterable[str], files: Iterable[Path]) -> dict[str, list[str]]:
    """Find where classes of these names, private ones too, are defined."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for path in files:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef) and (name := node.name.lstrip("_")) in found:
                found[name].append(f"{path.name}:{node.lineno}")
    return found


def is_sentence(line: str) -> bool:
    """Tell whether a line says something: words from a capital letter to a full stop."""
    return re.fullmatch(r"[A-Z`]\S*( \S+){2,}(?<=\.)", line) is not None


def introduction(tree: ast.Module) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def tracked_texts() -> Iterator[Path]:
    """Every text file under version control or about to be; without git, all that is not hidden."""
    for name in listed_by_git() or listed_by_hand():
        path = ROOT / name
        if path.is_file() and b"\0" not in path.read_bytes():
            yield path


def listed_by_git() -> list[str]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        return []
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return sorted(name for name in listing.stdout.split("\0") if name)


def listed_by_hand() -> list[str]:
    shown = [path for path in ROOT.iterdir() if path.name == ".ci" or path.name[0] != "."]
    return sorted(
        str(path.relative_to(ROOT))
        for top in shown
        for path in [top, *top.rglob("*")]
        if "__pycache__" not in path.parts
    )


def broken_contracts(folder: Path) -> str:
    """Check the import contracts against the `redrive` that is importable from a folder."""
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    config = str(ROOT / "pyproject.toml")
    ran = subprocess.run(
        [sys.executable, "-c", command, "--no-cache", "--no-logo", "--config", config],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr
