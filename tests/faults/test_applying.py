"""`kill -9` of who applies a file, at each statement: it is in force whole, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS


def test_a_file_is_in_force_whole_or_not_at_all_wherever_its_apply_is_killed(
    tmp_path: Path,
) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.faults.applying", f"sqlite:///{tmp_path}/shop.db"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert told.returncode == 0, told.stderr
    killed, changed = map(int, told.stdout.split())
    assert killed >= 10
    # Only who was killed after the commit has changed anything, and then all of it.
    assert changed == 1
