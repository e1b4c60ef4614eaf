"""What a kit tells of events that code has tracked."""

from __future__ import annotations

import pytest

from redrive import PayloadError, Redrive, Tracking, UsageError, quiet
from redrive.testing import Kit, SyncKit
from tests.tracking.sinks import Good


async def test_what_was_tracked_is_told_as_it_was_tracked() -> None:
    app, sink = Redrive("memory://", tracking=Tracking(sampling={"debug.*": 0.0})), Good()
    app.destination("sink", "page.*", transport=sink)

    async with Kit(app) as kit:
        app.track("page.seen", {"page": 7}, key="k")
        app.track("debug.seen")
        with pytest.raises(PayloadError):
            app.track("page.seen", object())
        with quiet():
            app.track("page.seen", object())
        found = kit.assert_tracked("page.*", payload={"page": 7}, times=1)
        kit.assert_tracked("debug.seen")
        assert [one.type for one in kit.tracked()] == ["page.seen", "debug.seen"]
        await kit.drain()

        assert sink.taken == [found[0].id]
        kit.assert_tracked("page.seen", key="k", times=1)
        with pytest.raises(AssertionError, match=r"(?s)at least one of 'order.paid'.*page\.seen"):
            kit.assert_tracked("order.paid")
        with pytest.raises(UsageError):
            kit.assert_tracked("page.seen", colour="red")


def test_code_without_a_loop_is_told_as_well() -> None:
    app = Redrive("memory://")

    with SyncKit(app) as kit:
        with pytest.raises(AssertionError, match="Nothing was tracked"):
            kit.assert_tracked("page.seen")
        app.track("page.seen")
        kit.assert_tracked("page.seen", times=1)
