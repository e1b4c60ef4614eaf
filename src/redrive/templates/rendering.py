"""One run of a template: the names it knows, and how much it may still do."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.errors import RenderError

__all__ = ["DEEPEST", "LARGEST", "MOST_STEPS", "MOST_WORK", "Rendering"]

MOST_STEPS = 100_000
"""How often the loops of a template may go round, all of them together."""
MOST_WORK = 200_000
"""How many operations may be carried out within them; what looks through long text or long lists
counts as many."""
LARGEST = 2**20
"""How many bytes may be built, of what is only in between as of what comes out."""
DEEPEST = 20
"""How deep a template may be nested: brackets, blocks, and what they make."""

_EACH = 8
"""What an element of a list counts for, beside what is in it."""
_LETTERS_PER_OPERATION = 64
_DEEPEST_VALUE = 200


class Rendering:
    """Counts what a template does, and ends it before it does too much.

    Whatever takes longer or more room the larger a value is, is counted here before it is done.
    """

    __slots__ = ("names", "size", "steps", "work")

    def __init__(self, names: Mapping[str, object]) -> None:
        self.names = dict(names)
        self.steps = 0
        self.work = 0
        self.size = 0

    def step(self, operations: int) -> None:
        """Count one time round a loop, and the operations in it."""
        self.steps += 1
        self.work += operations
        if self.steps > MOST_STEPS:
            raise RenderError(f"The loops go round more than {MOST_STEPS:,} times.")
        if self.work > MOST_WORK:
            raise _too_much_work()

    def spend(self, operations: int) -> None:
        """Count operations that are about to be carried out."""
        self.work += operations
        if self.work > MOST_WORK:
            raise _too_much_work()

    def read(self, text: str) -> None:
        """Count that a text is about to be looked through."""
        self.spend(1 + len(text) // _LETTERS_PER_OPERATION)

    def build(self, size: int) -> None:
        """Count what is about to be built, in bytes or letters."""
        self.size += size
        if self.size > LARGEST:
            raise RenderError(f"It would build more than {LARGEST:,} bytes.")

    def build_text(self, text: str) -> str:
        """Count a text that has just been built of one that was counted, and return it."""
        self.build(len(text))
        return text

    def build_list(self, length: int) -> None:
        """Count a list that is about to be built."""
        self.build(_EACH * length)

    def weigh(self, value: object) -> None:
        """Count what it takes to write a value down, whatever is within it, without recursion.

        What a template has put together can hold the same thing many times over, so that it is
        much larger written than kept.
        """
        level, depth = [value], 0
        while level:
            depth += 1
            if depth > _DEEPEST_VALUE:
                raise RenderError(
                    f"It would build lists or objects more than {_DEEPEST_VALUE} levels deep."
                )
            below: list[object] = []
            for one in level:
                if isinstance(one, str):
                    self.build(len(one) + 2)
                elif isinstance(one, dict):
                    self._count(len(one))
                    for name in one:
                        self.build(len(name) + 2)
                    below += one.values()
                elif isinstance(one, list):
                    self._count(len(one))
                    below += one
                else:
                    self.build(4)
            level = below

    def _count(self, length: int) -> None:
        self.spend(length)
        self.build(2 * length)


def _too_much_work() -> RenderError:
    return RenderError(f"It would carry out more than {MOST_WORK:,} operations.")
