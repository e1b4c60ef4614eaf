"""What the settings of the journal do, seen by an app whose store does not answer."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Redrive, Tracking
from redrive.journal.folder import FileState, files_of
from tests.waiting import eventually

NOWHERE = "postgresql://127.0.0.1:1/nowhere"


def spill(folder: Path, *, times: int = 1, **settings: Any) -> None:  # noqa: ANN401 - as given
    """Track while nobody answers, so that it goes to the journal."""
    app = Redrive(NOWHERE, journal=folder, **settings)
    for number in range(times):
        app.track("page.seen", {"n": number})
        assert app.tracking.flush_blocking("20s").waiting == 0
    assert app.tracking.figures().spilled == times
    app.tracking.close()


def test_journal_is_the_folder_of_what_the_store_could_not_take(tmp_path: Path) -> None:
    spill(tmp_path / "lifeboat")

    (file,) = files_of(tmp_path / "lifeboat")
    assert (file.state, file.records) == (FileState.TO_DRAIN, 1)


async def test_the_journal_stays_where_it_is_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "before")
    app = Redrive(NOWHERE, journal="lifeboat")
    app.track("page.seen")
    app.tracking.flush_blocking("20s")

    monkeypatch.chdir(tmp_path / "after")
    told = await app.operations.journal()

    assert (told.folder, len(told.files)) == (str(tmp_path / "before" / "lifeboat"), 1)
    app.tracking.close()


def test_journal_size_is_how_large_a_file_gets(tmp_path: Path) -> None:
    spill(tmp_path / "large", times=6)
    spill(tmp_path / "small", times=6, journal_size="1KB")

    assert len(files_of(tmp_path / "large")) == 1
    assert len(files_of(tmp_path / "small")) > 1


def test_journal_sync_is_when_it_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    counts = {}
    for sync in ("always", "interval", "never"):
        flushed.clear()
        spill(tmp_path / sync, times=4, journal_sync=sync)
        counts[sync] = len(flushed)

    assert counts["always"] > counts["interval"] > counts["never"] == 0


async def test_keep_journal_is_how_long_drained_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    spill(folder)
    (file,) = folder.iterdir()
    old = folder / "old.drained"
    file.rename(old)
    stamp = (datetime.now(UTC) - timedelta(days=3)).timestamp()
    os.utime(old, (stamp, stamp))

    for keep, is_there in (("7d", True), ("2d", False)):
        app = Redrive(
            f"sqlite:///{tmp_path}/shop.db",
            journal=folder,
            keep_journal=keep,
            tracking=Tracking(),
        )
        app.track("page.seen")
        await app.flush()
        if is_there:
            assert list(folder.glob("old.*")) == [old]
        else:
            await eventually(lambda: not old.exists(), what="the old file is gone")
        await app.close()
