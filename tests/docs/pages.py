"""The pages of the documentation, taken apart: blocks, tables, links and mentions.

How a page says what becomes of an example:

- A `python` block is a program of its own, and is run; one that holds tests is run by pytest.
- A block whose first line is a comment with a file name (`# shop.py`) is saved under that name;
  with `<!-- a file -->` above it, it is saved and not run. A `settings.py` in a folder is taken for
  a Django project, and gets the files that Django makes for one.
- The database at `postgresql:///shop`, or `"NAME": "shop"` in Django's settings, is a real one.
- With `<!-- needs eventsourcing -->` above it, a block is left out where that library is not
  installed.
- A `text` block directly below a `python` block is what it prints: the same words in the same
  order, where `…` stands for any.
- In a `console` block, what follows `$` is a command, and the lines below it are what it prints.
  Those of ours are run, and those of `manage.py`; a worker or a server is stopped once it has
  printed what the page shows.
  `<!-- exit code 3 -->` above the block is what its last command ends with, in place of 0.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TYPES = ROOT / ".mypy_cache" / "tests"
"""Where type checkers that tests start keep what they found; each question has a folder there."""
OURS = re.compile(r"(?:\w+=\S+ )*(?:redrive|python manage\.py) ")
"""A command of ours, as opposed to one that only prepares for it."""

_FENCE = re.compile(r"^```(\w*)\s*$")
_COMMENT = re.compile(r"^<!-- (.+) -->$")
_FILE_NAME = re.compile(r"# ([\w./]+\.(?:py|toml))\n")
_EXIT_CODE = re.compile(r"exit code (\d+)")
_NEEDS = re.compile(r"needs (\w+)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_MENTION = re.compile(r"(?:\$ )?(?:\w+=\S+ )*(redrive(?: [\w-].*?)?)(?:  .*)?$")
_HEADING = re.compile(r"^#+ (.+)$")


class Block(NamedTuple):
    """A fenced block: `line` is that of its first line, `note` the comment above it."""

    language: str
    source: str
    line: int
    note: str = ""
    is_below: bool = False
    """Whether nothing but empty lines stands between it and the block before."""

    @property
    def file_name(self) -> str | None:
        found = _FILE_NAME.match(self.source)
        return found and found[1]

    @property
    def is_only_a_file(self) -> bool:
        return self.note == "a file"

    @property
    def is_possible(self) -> bool:
        """Whether the library is here that the note above it names."""
        found = _NEEDS.fullmatch(self.note)
        return found is None or find_spec(found[1]) is not None

    @property
    def holds_tests(self) -> bool:
        return self.language == "python" and "def test_" in self.source

    @property
    def exit_code(self) -> int:
        found = _EXIT_CODE.fullmatch(self.note or "exit code 0")
        if found is None:
            raise ValueError(f"The note {self.note!r} above line {self.line} means nothing.")
        return int(found[1])

    def commands(self) -> list[tuple[str, str]]:
        """Return the commands of a `console` block, each with what it prints."""
        found: list[tuple[str, str]] = []
        for line in self.source.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ ").partition("  #")[0].rstrip(), ""))
            elif found:
                command, printed = found.pop()
                found.append((command, f"{printed}{line}\n"))
        return found


def needs_postgres(page: Path) -> bool:
    return any(
        ":///shop" in block.source and "postgresql" in block.source for block in blocks_of(page)
    )


def pages() -> list[Path]:
    """Return every page that a reader is sent to."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def blocks_of(page: Path) -> list[Block]:
    return list(_blocks(page.read_text(encoding="utf-8")))


def _blocks(text: str) -> Iterator[Block]:
    language: str | None = None
    source: list[str] = []
    begin, note, is_below = 0, "", False
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if language is None and fence:
            language, source, begin = fence[1], [], number + 1
        elif language is not None and line == "```":
            yield Block(language, "".join(source), begin, note, is_below)
            language, note, is_below = None, "", True
        elif language is not None:
            source.append(f"{line}\n")
        elif line.strip():
            comment = _COMMENT.match(line)
            note, is_below = (comment[1] if comment else ""), False


def prose_of(page: Path) -> str:
    """Return a page without its fenced blocks."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links_of(page: Path) -> list[str]:
    return _LINK.findall(_CODE.sub("", prose_of(page)))


def anchors_of(page: Path) -> list[str]:
    """Return what the headings of a page can be linked by."""
    headings = [_HEADING.match(line) for line in prose_of(page).splitlines()]
    words = [re.sub(r"[^\w\- ]", "", one[1].lower()) for one in headings if one]
    return [word.replace(" ", "-") for word in words]


def code_of(page: Path) -> list[str]:
    """Return what a page sets as code within its sentences and tables."""
    return _CODE.findall(prose_of(page))


def mentions_of(page: Path) -> list[str]:
    """Return every mention of a command of ours: in sentences, to be typed in, or just shown."""
    shown = [line for block in blocks_of(page) for line in block.source.splitlines()]
    found = [_MENTION.match(line) for line in [*shown, *code_of(page)]]
    return [one[1].strip() for one in found if one]


def table_of(page: Path, heading: str) -> dict[str, list[str]]:
    """Return the first table below a heading: the cells of each row by the code in its first."""
    _, _, below = page.read_text(encoding="utf-8").partition(f"# {heading}\n")
    table: dict[str, list[str]] = {}
    for line in below.splitlines():
        if line.startswith("| `"):
            first, *cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            table[first.strip("`")] = cells
        elif table:
            break
    return table
