"""How examples are run: each page in a folder of its own, block after block, for real."""

import contextlib
import importlib
import io
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import OURS, ROOT, Block, blocks_of, name_of

_PATIENCE_SECONDS = 120
_COMMAND = f"""
redrive() {{
    exec {sys.executable} -c 'import sys; from redrive.cli.main import main; sys.exit(main())' "$@"
}}
python() {{
    exec {sys.executable} "$@"
}}
"""
_MANAGE = """
import os, sys
from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "{settings}"
execute_from_command_line(sys.argv)
"""


@contextlib.contextmanager
def _logging_restored() -> Iterator[None]:
    """Take back what a page adds to loggers: the tests after it have some of the same names."""
    before = {name: (list(one.handlers), one.level) for name, one in _loggers()}
    yield
    for name, one in _loggers():
        handlers, level = before.get(name, ([], logging.NOTSET))
        one.handlers[:] = handlers
        one.setLevel(level)


def _loggers() -> list[tuple[str, logging.Logger]]:
    known = [("", logging.getLogger()), *logging.root.manager.loggerDict.items()]
    return [(name, one) for name, one in known if isinstance(one, logging.Logger)]


class Walk:
    """One reader who follows one page from top to bottom, in an empty folder."""

    def __init__(
        self,
        page: Path,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        database: str = "shop",
    ) -> None:
        self._page = page
        self._database = database
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._tests: list[str] = []

    def follow(self, *, pytest_options: list[str]) -> None:
        """Do what the page says; fails at the first block that does not work."""
        self._monkeypatch.chdir(self._folder)
        self._monkeypatch.syspath_prepend(self._folder)
        for variable in list(os.environ):
            if variable.startswith("REDRIVE_"):
                self._monkeypatch.delenv(variable)
        blocks = blocks_of(self._page)
        pairs = zip(blocks, [*blocks[1:], None], strict=True)
        for block, below in [(one, below) for one, below in pairs if one.is_possible]:
            if block.holds_tests:
                self._save(block, self._test_name(block))
            elif block.file_name:
                self._save(block, block.file_name)
            if block.language == "python" and not (block.holds_tests or block.is_only_a_file):
                printed = self._run(block)
                if below and below.language == "text" and below.is_below:
                    self._compare(below, below.source, printed)
            elif block.language == "console":
                self._type_in(block)
        if self._tests:
            self._run_tests(pytest_options)

    def _save(self, block: Block, name: str) -> None:
        file = self._folder / name
        if file.parent != self._folder:
            file.parent.mkdir(exist_ok=True)
            (file.parent / "__init__.py").touch()
            if file.name == "settings.py":
                manage = _MANAGE.format(settings=f"{file.parent.name}.settings")
                (self._folder / "manage.py").write_text(manage, encoding="utf-8")
        file.write_text(self._here(block.source), encoding="utf-8")

    def _here(self, source: str) -> str:
        """Put the name of the database that there is in place of the page's."""
        return source.replace(":///shop", f":///{self._database}").replace(
            '"NAME": "shop"', f'"NAME": "{self._database}"'
        )

    def _run(self, block: Block) -> str:
        module = ModuleType("__main__")
        # As many empty lines as stand above it, so that a traceback names the line of the page.
        source = self._here(block.source)
        code = compile("\n" * (block.line - 1) + source, str(self._page), "exec")
        printed = io.StringIO()
        with (
            self._monkeypatch.context() as patch,
            contextlib.redirect_stdout(printed),
            _logging_restored(),
        ):
            patch.setitem(sys.modules, "__main__", module)
            importlib.invalidate_caches()
            exec(code, module.__dict__)  # noqa: S102 - running the examples is the point
        self._forget_modules()
        return printed.getvalue()

    def _forget_modules(self) -> None:
        """Other pages may save a module of the same name."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(str(self._folder)):
                del sys.modules[name]

    def _test_name(self, block: Block) -> str:
        name = block.file_name or f"test_line_{block.line}.py"
        self._tests.append(name)
        return name

    def _run_tests(self, options: list[str]) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        with self._started([*command, *self._tests]) as process:
            printed, _ = process.communicate()
        assert process.returncode == 0, f"{name_of(self._page)}\n{printed}"

    def _type_in(self, block: Block) -> None:
        commands = [one for one in block.commands() if OURS.match(one[0])]
        for number, (command, expected) in enumerate(commands, start=1):
            with self._started(["bash", "-c", f"{_COMMAND}{self._here(command)}"]) as process:
                if is_worker := re.search(r"redrive[ _](?:worker|serve|mcp)", command) is not None:
                    printed = _stop_after(expected, process)
                else:
                    printed, _ = process.communicate()
            if expected:
                self._compare(block, f"…{expected}…" if is_worker else expected, printed)
            wanted = block.exit_code if number == len(commands) else 0
            assert process.returncode == wanted, f"{self._at(block)}: {command}\n{printed}"

    @contextlib.contextmanager
    def _started(self, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        given = {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        patience = threading.Timer(_PATIENCE_SECONDS, process.kill)
        patience.start()
        try:
            with process:
                yield process
        finally:
            patience.cancel()
            process.kill()

    def _compare(self, block: Block, expected: str, printed: str) -> None:
        assert _fits(expected, printed), (
            f"{self._at(block)} promises\n{expected}\nand what comes is\n{printed}"
        )

    def _at(self, block: Block) -> str:
        return f"{name_of(self._page)}:{block.line}"


def _stop_after(expected: str, process: subprocess.Popen[str]) -> str:
    """Stop a worker as a person would, once it has printed what the page shows."""
    printed, is_told = "", False
    for line in process.stdout or ():
        printed += line
        # A second signal would end it at once.
        if not is_told and _fits(f"…{expected}…", printed):
            process.terminate()
            is_told = True
    return printed


def _fits(expected: str, printed: str) -> bool:
    """Columns are as wide as what stands in them, so only the words and their order count."""
    parts = [" ".join(re.escape(word) for word in part.split()) for part in expected.split("…")]
    pattern = ".*?".join(part.replace(" ", r"\s+") for part in parts)
    return re.fullmatch(rf"\s*{pattern}\s*", printed, flags=re.DOTALL) is not None


def programs_of(page: Path) -> Iterator[tuple[str, str]]:
    """Return the Python of a page as modules for the type checker, each with its file name."""
    stem = re.sub(r"\W", "_", name_of(page).removesuffix(".md").lower())
    for block in blocks_of(page):
        if block.language == "python" and block.is_possible:
            yield block.file_name or f"{stem}_line_{block.line}.py", block.source
