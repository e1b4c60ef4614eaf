"""What is limited, filtered, sampled and kept, and what happens when there is no room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from redrive import (
    BufferFullError,
    Bypass,
    ConfigurationError,
    Filter,
    PayloadError,
    Redrive,
    Tracking,
    quiet,
    strict,
)
from redrive.model.event import Severity
from redrive.model.limits import Rate
from redrive.model.settlement import FailureReason
from redrive.policies.filter import Saving
from redrive.testing import Kit
from redrive.tracking.terms import Candidate
from tests.tracking.sinks import Dead, Good


class Shop:
    """An app in a kit, whose clock stands still, with a good sink for everything."""

    def __init__(self, app: Redrive, kit: Kit, sink: Good) -> None:
        self.app, self.kit, self.sink = app, kit, sink


@pytest_asyncio.fixture
async def shop(request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    app, sink = Redrive("memory://", tracking=getattr(request, "param", Tracking())), Good()
    app.destination("sink", "*", transport=sink)
    async with Kit(app) as kit:
        yield Shop(app, kit, sink)


with_terms = pytest.mark.parametrize


def tracking(terms: Tracking) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("shop", [terms], indirect=True)


@tracking(Tracking(rate="1/s"))
async def test_what_is_above_the_rate_becomes_a_dead_letter(shop: Shop) -> None:
    for _ in range(5):
        shop.app.track("page.seen")
    figures = await shop.app.flush()

    letters = shop.kit.dead_letters()
    assert (len(shop.sink.taken), len(letters)) == (1, 4)
    assert {one.reason for one in letters} == {FailureReason.RATE_LIMITED}
    assert {one.attempts for one in letters} == {0}
    assert (figures.limited, figures.stored, figures.sent) == (4, 4, 1)
    assert figures.is_balanced


@tracking(Tracking(rate="1/s"))
async def test_a_rate_fills_again_with_time(shop: Shop) -> None:
    shop.app.track("page.seen")
    shop.kit.clock.advance("1s")
    shop.app.track("page.seen")
    await shop.app.flush()

    assert len(shop.sink.taken) == 2


@tracking(Tracking(rate="1/s", filter=Filter(never_save=("page.*",))))
async def test_the_filter_drops_the_excess_and_counts_it(shop: Shop) -> None:
    tracked = [shop.app.track("page.seen") for _ in range(3)]
    figures = await shop.app.flush()

    assert [one.dropped for one in tracked] == ["", "rate_limited", "rate_limited"]
    assert figures.dropped == {"rate_limited": 2}
    assert shop.kit.dead_letters() == []
    assert figures.is_balanced


@tracking(Tracking(rates={"debug.*": "1/s", "order.*": None}, rate="1/s"))
async def test_a_rate_of_its_own_for_some_types(shop: Shop) -> None:
    for _ in range(5):
        shop.app.track("order.paid")
        shop.app.track("debug.seen")
        shop.app.track("page.seen")
    figures = await shop.app.flush()

    assert figures.sent == 5 + 1 + 1


@tracking(
    Tracking(
        rate="1/s",
        sampling={"*": 0.0},
        bypass=Bypass(
            severity=Severity.ERROR, patterns=("audit.*",), when=lambda one: one.tenant == "vip"
        ),
    )
)
async def test_what_bypasses_is_neither_limited_nor_sampled(shop: Shop) -> None:
    for _ in range(3):
        shop.app.track("page.failed", severity=Severity.CRITICAL)
        shop.app.track("audit.seen")
        shop.app.track("page.seen", tenant="vip")
        shop.app.track("page.seen", {"severity": "critical", "tenant": "vip"})
    figures = await shop.app.flush()

    assert (figures.sent, figures.dropped) == (9, {"sampled": 3})


async def test_a_bypass_is_never_told_of_the_payload() -> None:
    assert "payload" not in Candidate.__struct_fields__
    assert "payload" not in Saving.__struct_fields__


@tracking(Tracking(rate=None, sampling={"debug.*": 0.25}))
async def test_a_sample_of_a_type_is_tracked_and_the_rest_counted(shop: Shop) -> None:
    for _ in range(400):
        shop.app.track("debug.seen")
        shop.app.track("page.seen")
    figures = await shop.app.flush()

    assert 60 < figures.sent - 400 < 140
    assert figures.dropped == {"sampled": 800 - figures.sent}


@tracking(Tracking(capacity=3, on_full="drop_oldest"))
async def test_the_oldest_makes_room_if_that_is_wanted(shop: Shop) -> None:
    tracked = [shop.app.track("page.seen", {"n": number}) for number in range(5)]
    figures = await shop.app.flush()

    assert shop.sink.taken == [one.event_id for one in tracked[2:]]
    assert (figures.dropped, figures.sent) == ({"full": 2}, 3)
    assert figures.is_balanced


@tracking(Tracking(capacity=3, on_full="raise"))
async def test_a_full_buffer_raises_if_that_is_wanted(shop: Shop) -> None:
    for _ in range(3):
        shop.app.track("page.seen")

    with pytest.raises(BufferFullError, match="3 tracked events wait"):
        shop.app.track("page.seen")

    figures = await shop.app.flush()
    assert (figures.sent, figures.dropped) == (3, {"full": 1})
    assert figures.is_balanced


@tracking(Tracking(capacity=3))
async def test_what_finds_no_room_goes_by_way_of_the_journal(shop: Shop) -> None:
    for number in range(5):
        shop.app.track("page.seen", {"n": number})
    figures = await shop.app.flush()

    assert (figures.sent, figures.spilled, figures.drained) == (3, 2, 2)
    assert figures.is_balanced
    await shop.kit.drain()
    assert len(shop.sink.taken) == 5


async def test_what_is_wrong_with_an_event_is_raised_at_who_tracks_it(shop: Shop) -> None:
    with pytest.raises(PayloadError):
        shop.app.track("page.seen", object())
    with pytest.raises(ConfigurationError, match="event type"):
        shop.app.track("not a type")
    with pytest.raises(ConfigurationError):
        shop.app.track("page.seen", key="a\x00b")

    assert shop.app.tracking.figures().tracked == 0


async def test_quiet_code_never_hears_of_it_and_a_person_does(shop: Shop) -> None:
    with quiet():
        shop.app.track("page.seen", {"who": object()}, key="k", tenant="acme")
        with strict(), pytest.raises(PayloadError):
            shop.app.track("page.seen", object())
    figures = await shop.app.flush()

    (letter,) = shop.kit.dead_letters()
    assert (letter.reason, letter.event_type) == (FailureReason.TRACKING_FAILED, "page.seen")
    assert (letter.key, letter.tenant) == ("k", "acme")
    assert letter.fault is not None
    assert "JSON" in letter.fault.message
    assert (figures.tracked, figures.stored) == (1, 1)


@tracking(Tracking(capacity=2, on_full="raise"))
async def test_a_full_buffer_is_kept_from_quiet_code(shop: Shop) -> None:
    with quiet():
        for _ in range(4):
            shop.app.track("page.seen")
    figures = await shop.app.flush()

    assert (figures.sent, figures.spilled, figures.drained) == (2, 2, 2)
    assert {one.reason for one in shop.kit.dead_letters()} == {FailureReason.TRACKING_FAILED}


def blank(event_type: str, payload: object) -> object:
    if event_type == "page.broken":
        raise LookupError("no such field")
    assert isinstance(payload, dict)
    return {**payload, "token": "***", "host": "web-1"}


@tracking(
    Tracking(
        enrich=blank,
        defaults={"source": "shop", "tenant": "acme", "headers": {"app": "shop"}},
    )
)
async def test_what_leaves_is_enriched_and_has_the_default_attributes(shop: Shop) -> None:
    given = {"token": "secret"}
    shop.app.destination("dead", "page.*", transport=Dead())
    shop.app.track("page.seen", given)
    await shop.app.flush()

    (event,) = shop.kit.published("page.seen")
    assert event.payload == {"token": "***", "host": "web-1"}
    assert (event.source, event.tenant, event.headers) == ("shop", "acme", {"app": "shop"})
    assert given == {"token": "secret"}


@tracking(Tracking(enrich=blank))
async def test_what_a_hook_could_not_look_at_is_not_kept(shop: Shop) -> None:
    with pytest.raises(LookupError):
        shop.app.track("page.broken", {"token": "secret"})
    with quiet():
        shop.app.track("page.broken", {"token": "secret"})
    await shop.app.flush()

    (event,) = shop.kit.published("page.broken")
    assert "secret" not in str(event.payload)
    assert len(shop.kit.dead_letters()) == 1


@tracking(Tracking(filter=Filter(save_if=lambda one: one.severity is not Severity.DEBUG)))
async def test_what_failed_and_is_not_worth_keeping_is_counted(shop: Shop) -> None:
    app = Redrive("memory://", tracking=shop.app.tracking.terms)
    app.destination("dead", "*", transport=Dead())
    async with Kit(app):
        app.track("page.seen", severity=Severity.DEBUG)
        app.track("page.seen")
        figures = await app.flush()

    assert (figures.dropped, figures.stored) == ({"filtered": 1}, 1)
    assert figures.destinations["dead"].dropped == 1
    assert figures.is_balanced


def test_a_rate_in_text_lets_a_second_s_worth_through_at_once_as_the_default_does() -> None:
    assert Tracking(rate="1000/s").rate == Tracking().rate
    assert Tracking(rates={"debug.*": "30/m"}).rates[0][1] == Rate(per_second=0.5, burst=1.0)


class TestFilter:
    def test_what_is_in_both_lists_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="in never_save and in always_save"):
            Filter(never_save=("debug.*",), always_save=("debug.*", "order.*"))

    @pytest.mark.parametrize(
        ("event_type", "said"),
        [
            ("debug.seen", "drop"),
            ("debug.kept", "drop_twice"),
            ("order.paid", "keep"),
            ("page.seen", "drop"),
            ("page42", "keep"),
        ],
    )
    def test_never_wins_then_always_then_the_function(self, event_type: str, said: str) -> None:
        decide = Filter(
            never_save=("debug.*",),
            always_save=("order.*", "debug.kept", r"re:page\d+"),
            save_if=lambda _: False,
        ).ready()

        saving = Saving(reason="failed", type=event_type, severity=Severity.INFO)
        assert str(decide(saving)) == said

    def test_a_function_that_fails_costs_no_event(self) -> None:
        decide = Filter(save_if=lambda one: bool(1 / 0)).ready()

        saving = Saving(reason="failed", type="page.seen", severity=Severity.INFO)
        assert str(decide(saving)) == "keep"

    def test_an_expression_that_is_none_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="RE2"):
            Filter(never_save=("re:(",))

    def test_no_expression_hangs(self) -> None:
        decide = Filter(never_save=("re:(a*)*b",)).ready()

        saving = Saving(reason="failed", type="a" * 200, severity=Severity.INFO)
        assert str(decide(saving)) == "keep"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"capacity": 0}, "capacity is 0"),
        ({"on_full": "wait"}, "on_full is 'wait'"),
        ({"rate": "fast"}, "rate is 'fast'"),
        ({"sampling": {"a.*": 2}}, "share from 0 to 1"),
        ({"rates": 7}, "rates is 7"),
        ({"defaults": {"kye": "a"}}, "kye"),
        ({"enrich": "shout"}, "enrich is 'shout'"),
        ({"fan_out": "0s"}, "fan_out is 0s"),
    ],
)
def test_wrong_terms_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Tracking(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environment", "rate", "on_full"),
    [
        ("production", 1000.0, "spill"),
        ("", 1000.0, "spill"),
        ("staging", 200.0, "spill"),
        ("development", None, "drop_oldest"),
        ("test", None, "raise"),
    ],
)
def test_each_environment_has_its_terms(
    environment: str, rate: float | None, on_full: str, tmp_path: Path
) -> None:
    terms = Redrive("memory://", environment=environment).tracking.terms

    assert terms.rate is None if rate is None else terms.rate is not None
    assert terms.rate is None or terms.rate.per_second == rate
    assert terms.on_full == on_full


class TestOverRetryRate:
    """Above the rate of retries of a destination."""

    @pytest.mark.parametrize(
        ("terms", "stored"),
        [
            (Tracking(over_retry_rate="drop"), 2),
            (Tracking(over_retry_rate="drop", filter=Filter(always_save=("page.*",))), 5),
            (Tracking(over_retry_rate="drop", filter=Filter(save_if=lambda _: True)), 5),
            (Tracking(), 5),
        ],
    )
    async def test_what_fails_is_dropped_where_the_filter_allows_it(
        self, terms: Tracking, stored: int
    ) -> None:
        app = Redrive("memory://", tracking=terms)
        rate = Rate(per_second=1.0, burst=2.0)
        app.destination("dead", "page.*", transport=Dead(), retry_rate=rate, breaker=None)
        async with Kit(app) as kit:
            for _ in range(5):
                app.track("page.seen")
            figures = await app.flush()
            kit.clock.advance("1s")
            app.track("page.seen")
            later = await app.flush()

        assert (figures.stored, figures.is_balanced) == (stored, True)
        dropped = 5 - stored
        assert figures.dropped == ({"over_retry_rate": dropped} if dropped else {})
        assert figures.destinations["dead"].dropped == dropped
        assert later.stored == stored + 1

    async def test_what_was_published_is_never_dropped(self) -> None:
        app = Redrive("memory://", tracking=Tracking(over_retry_rate="drop"))
        app.destination(
            "dead", "page.*", transport=Dead(), retry_rate=Rate(per_second=1.0), breaker=None
        )
        async with Kit(app) as kit:
            for number in range(5):
                await app.publish("page.seen", number)
            tally = await kit.drain()
            figures = await app.operations.status()

        assert tally.retried == 5
        assert figures.destinations[0].pending == 5

    async def test_what_is_no_policy_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="one of delay, drop"):
            Tracking(over_retry_rate="dead_letter")  # type: ignore[arg-type]
