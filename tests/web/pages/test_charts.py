"""Charts: trends drawn by the server, in words and in a table as well."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from redrive.model.trend import Measure, Trend, TrendPoint, Window
from redrive.policies.trend import drawn
from redrive.web.pages.charts import Charts, charts_of
from tests.web.pages.conftest import Shop

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


def a_trend(*points: tuple[int, Measure], window: Window = Window.HOUR) -> Charts:
    """Return what is drawn of measures that are so many minutes old."""
    kept = [
        TrendPoint(start=(NOW - timedelta(minutes=age)).replace(second=0), measure=one)
        for age, one in points
    ]
    return charts_of(
        Trend(
            destination=None,
            window=window,
            step=window.step,
            now=NOW,
            points=drawn(kept, window, now=NOW),
        )
    )


def test_the_largest_bar_has_full_height_and_nothing_is_no_bar() -> None:
    charts = a_trend((0, Measure(delivered=10)), (30, Measure(delivered=5)))

    delivered = charts.charts[0]
    [shape] = delivered.shapes
    assert re.findall(r"v-([\d.]+)", shape.d) == ["60.0", "120.0"]
    assert (delivered.total, delivered.top) == ("15", "10/min")
    assert delivered.words == "Delivered: 15 over the last hour, at most 10 a minute."


def test_one_among_many_is_still_seen() -> None:
    charts = a_trend((0, Measure(failed=10_000)), (30, Measure(failed=1)))

    failed = charts.charts[1]
    assert float(re.findall(r"v-([\d.]+)", failed.shapes[0].d)[0]) >= 2
    assert failed.level == "error"


def test_where_nothing_happened_it_is_said() -> None:
    charts = a_trend()

    assert [one.words for one in charts.charts] == [
        "Delivered: none over the last hour.",
        "Failed: none over the last hour.",
        "Retried: none over the last hour.",
        "Oldest due: nothing that was due had to wait over the last hour.",
        "Latency: no try ended over the last hour.",
    ]
    assert all(not one.shapes for one in charts.charts)


def test_how_late_and_how_slow_have_their_own_scale() -> None:
    slow = Measure(overdue=90, latencies=(19, *(0,) * 9, 1, 0))
    charts = a_trend((5, slow), (1, Measure(overdue=600)))

    late, latency = charts.charts[3:]
    assert (late.total, late.top) == ("10 min", "10 min")
    assert latency.words == (
        "Latency: half of the tries over the last hour took at most 3 ms, and 95 % at most 5 ms."
    )
    assert [one.name for one in latency.shapes] == ["slow", "typical"]


@pytest.mark.parametrize(("window", "rows"), [("hour", 12), ("day", 12), ("week", 7)])
def test_the_table_says_the_same(window: str, rows: int) -> None:
    charts = a_trend(
        (0, Measure(delivered=1_200, failed=3, latencies=(1_203, *(0,) * 11))),
        window=Window(window),
    )

    assert len(charts.rows) == rows
    assert charts.rows[0][1:] == ("1,200", "3", "0", "-", "2 ms", "5 ms")


async def test_the_overview_and_a_destination_show_theirs(broken: Shop) -> None:
    browser = broken.browser()
    for path in ("/", "/destinations/billing"):
        await browser.open(f"{path}?over=day")
        html = browser.answer.body.decode()

        assert "Failed: 3 over the last day, at most 3 in ten minutes." in html
        assert html.count('role="img"') == 5
        assert f'href="{path}?over=day#over-time" aria-current="true"' in html
        assert "The same as a table" in html
        assert "style=" not in html


async def test_an_unknown_window_is_refused_in_one_sentence(shop: Shop) -> None:
    browser = shop.browser()
    await browser.open("/?over=year")

    assert browser.answer.status == 400
    assert "A trend goes over one of: hour, day, week" in browser.answer.body.decode()
