"""The story is told once, in one process, for all tests that ask about it."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep those together that share it."""
    for item in items:
        if "told" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("the story"))
