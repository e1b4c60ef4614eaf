"""Every key has an effect: a table of all keys and the tests that show what each one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import (
    AutoReplay,
    Breaker,
    ConfigurationError,
    Event,
    Fairness,
    HealthCheck,
    Keep,
    NewEvent,
    PayloadError,
    Query,
    Rate,
    Redrive,
    Retry,
    SharedRate,
    Transient,
)
from redrive.app.config import AppOptions, Settings
from redrive.app.declaration import DestinationOptions, HandlerOptions, Ports
from redrive.app.scheduling import ScheduleOptions
from redrive.model.delivery import Delivery, Leased, Status
from redrive.model.limits import Limits
from redrive.model.outcome import Outcome
from redrive.model.replay import Pace
from redrive.model.request_log import RequestLog
from redrive.observer import HandlerStuck
from redrive.policies.terms import Terms
from redrive.store import Claim, ClaimRequest
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock, Kit
from redrive.testing.fakes import InlineExecutor
from tests.app import (
    test_auto_replay,
    test_environments,
    test_expiring,
    test_fairness,
    test_giving_up,
    test_keeping,
    test_limits,
    test_outages,
    test_redacting,
    test_replays,
    test_request_log,
    test_results,
    test_schedules,
    test_secrets,
    test_services,
    test_terms,
    test_threads,
)
from tests.app.recorder import Recorder
from tests.effects import test_effects
from tests.http import test_health_checks
from tests.tracking import test_settings as test_tracking
from tests.waiting import eventually

ONCE = Retry(max_attempts=1)


async def pending(kit: Kit) -> list[Delivery]:
    page = await kit.operations.deliveries(Query(status=Status.PENDING))
    return list(page.deliveries)


async def quiet(clock: FakeClock) -> None:
    """Let everybody who can go on do so."""
    for _ in range(20):
        await clock.sleep(0)


async def test_store_is_where_everything_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with Redrive(f"sqlite:///{path}") as app:
        await app.publish("order.paid")

    async with Redrive(f"sqlite:///{path}") as again:
        assert (await again.operations.status()).events == 1


async def test_payload_limit_refuses_what_is_larger() -> None:
    app = Redrive("memory://", payload_limit="1KB")
    async with Kit(app) as kit:
        await app.publish("order.paid", "x" * 998)

        with pytest.raises(PayloadError, match="1,001 bytes of JSON, more than the limit of 1,000"):
            await app.publish("order.paid", "x" * 999)

        kit.assert_published("order.paid", times=1)


async def test_concurrency_is_how_many_run_at_once() -> None:
    app, running, most = Redrive("memory://", concurrency=3), 0, 0

    @app.handler("order.*")
    async def bill(event: Event[Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await kit.clock.sleep(0)
        running -= 1

    async with Kit(app) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(10)])
        await kit.drain()

    assert most == 3


@pytest.mark.parametrize(("share", "expected"), [(None, 1), (0.5, 2), ("1", 4)])
async def test_largest_share_is_how_much_one_of_many_destinations_may_hold(
    share: float | None, expected: int
) -> None:
    """Its handlers never end, and the others are served all the same unless it may hold all."""
    app = Redrive("memory://", concurrency=4, largest_share=share)  # type: ignore[arg-type]
    hanging = asyncio.Event()
    begun: list[str] = []

    def serve(name: str) -> None:
        @app.handler(f"{name}.*", name=name)
        async def handle(event: Event[Any]) -> None:
            begun.append(name)
            if name == "hung":
                await hanging.wait()

    for name in ("hung", "a", "b", "c", "d"):
        serve(name)
    async with app:
        await app.publish_many([NewEvent(type="hung.now") for _ in range(9)])
        async with app.worker():
            await eventually(lambda: begun.count("hung") == expected, what="its share is taken")
            await app.publish_many([NewEvent(type=f"{name}.now") for name in "abcd"])
            if expected < 4:
                await eventually(lambda: set("abcd") <= set(begun), what="the others are served")
            assert begun.count("hung") == expected
            hanging.set()


@pytest.mark.parametrize("share", [0, 1.5, "much", [0.5]])
def test_a_share_is_a_part_of_one(share: object) -> None:
    with pytest.raises(ConfigurationError, match=r"a part of 1, such as 0\.25"):
        Redrive("memory://", largest_share=share)  # type: ignore[arg-type]


async def test_lease_is_how_long_a_silent_worker_keeps_its_deliveries() -> None:
    app = Redrive("memory://", lease="7s")
    seen: list[Delivery] = []

    @app.handler("order.*")
    async def bill(event: Event[Any]) -> None:
        page = await app.operations.deliveries(Query(status=Status.IN_FLIGHT))
        seen.extend(page.deliveries)

    async with Kit(app) as kit:
        await app.publish("order.paid")
        await kit.drain()

        [flying] = seen
        assert flying.lease_until == kit.clock.now() + timedelta(seconds=7)


async def test_grace_is_how_long_a_handler_may_go_on_after_its_time() -> None:
    app, recorder = Redrive("memory://", grace="3s", lease="60s"), Recorder()
    app.observe(recorder)
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.handler("order.*", timeout="5s", retry=ONCE)
    async def bill(event: Event[Any]) -> None:
        started.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    async with Kit(app) as kit, app.worker():
        await app.publish("order.paid")
        await started.wait()
        for seconds in (5, 2):
            kit.clock.advance(timedelta(seconds=seconds))
            await quiet(kit.clock)
        before = recorder.of(HandlerStuck)
        kit.clock.advance("1s")
        await recorder.wait_for(HandlerStuck)
        may_end.set()

    assert before == []
    assert len(recorder.of(HandlerStuck)) == 1


async def test_poll_is_how_often_an_idle_worker_looks() -> None:
    class CountingStore(MemoryStore):
        claims = 0

        async def claim(self, request: ClaimRequest) -> Claim:
            self.claims += 1
            return await super().claim(request)

    app, clock = Redrive("memory://", poll="20s"), FakeClock()
    app.handler("order.*", name="billing")(print)
    store = CountingStore(clock)
    with app.rewired(Ports(clock=clock, executor=InlineExecutor()), lambda: store):
        async with app.worker():
            for _ in range(59):
                await quiet(clock)
                clock.advance("1s")

    assert store.claims == 3


async def test_generation_marks_what_is_published() -> None:
    app = Redrive("memory://", generation="blue")
    app.handler("order.*", name="billing")(print)
    async with Kit(app) as kit:
        kit.script("billing")
        await app.publish("order.paid")

        assert [one.generation for one in kit.published()] == ["blue"]
        assert (await kit.drain()).delivered == 1


async def test_generations_are_what_a_worker_claims() -> None:
    app = Redrive("memory://", generations=["blue", "green"])
    app.handler("order.*", name="billing")(print)
    async with Kit(app) as kit:
        billing = kit.script("billing")
        for generation in ("blue", "green", "red"):
            await app.publish("order.paid", generation=generation)

        await kit.drain()

        assert [one.generation for one in billing.received] == ["blue", "green"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_history_is_how_many_tries_are_remembered(kind: str, tmp_path: Path) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/redrive.db"
    app = Redrive("memory://", history=2)
    app.handler("order.*", name="billing", retry=Retry(max_attempts=5, base="0s"))(print)
    async with Kit(app, store=url) as kit:
        kit.script("billing", [Transient("busy")], repeats=True)
        await app.publish("order.paid")
        for _ in range(4):
            await kit.drain(until="1m")
            await kit.operations.replay([1], by="ada")

        [waiting] = await pending(kit)
        story = await kit.operations.show(waiting.id)

    assert len(story.delivery.cycles) == 2
    assert [one.number for one in story.delivery.cycles[-1].log] == [4, 5]


async def test_a_transport_of_ones_own_is_served_on_the_same_terms() -> None:
    class Down:
        batch = 1

        async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
            raise ConnectionError("refused")

    app = Redrive("memory://")
    app.destination(
        "gateway",
        "order.*",
        transport=Down(),
        retry=Retry(max_attempts=9),
        retry_overrides={"order.*": ONCE},
        timeout="5s",
        concurrency=1,
        terminal=(LookupError,),
        transient=(PayloadError,),
        snooze_limit=1,
        snooze_age="1h",
        order="park",
        breaker=Breaker(failures=9),
        rate="50/s",
        profile="critical",
        health=HealthCheck(print),
        retry_rate="20/s",
        over_retry_rate="delay",
        replay_rate="10/s",
        retry_budget=0.5,
        shared_rate=SharedRate("acme", "50/s"),
        auto_replay=AutoReplay(cron="0 3 * * *"),
        fairness=Fairness(turn=1),
    )
    async with Kit(app) as kit:
        await app.publish("order.paid", 1, key="order-42")
        await app.publish("order.paid", 2, key="order-42")

        tally = await kit.drain()

        [parked] = await pending(kit)
        assert tally.failed == 1
        assert parked.behind == kit.dead_letters()[0].id


SETTINGS: Mapping[str, Callable[..., object]] = {
    "store": test_store_is_where_everything_is_kept,
    "payload_limit": test_payload_limit_refuses_what_is_larger,
    "concurrency": test_concurrency_is_how_many_run_at_once,
    "threads": (test_threads.test_all_destinations_together_use_few_threads_and_async_ones_go_on),
    "environment": (
        test_environments.test_each_environment_has_its_limits_and_keeps_what_it_does_not_name
    ),
    "largest_share": test_largest_share_is_how_much_one_of_many_destinations_may_hold,
    "lease": test_lease_is_how_long_a_silent_worker_keeps_its_deliveries,
    "grace": test_grace_is_how_long_a_handler_may_go_on_after_its_time,
    "poll": test_poll_is_how_often_an_idle_worker_looks,
    "generation": test_generation_marks_what_is_published,
    "generations": test_generations_are_what_a_worker_claims,
    "history": test_history_is_how_many_tries_are_remembered,
    "keep_delivered": test_keeping.test_keep_delivered_is_how_long_what_arrived_is_kept,
    "keep_events": test_keeping.test_keep_events_is_how_long_the_log_is_kept,
    "keep_events_of": test_keeping.test_keep_events_of_is_the_same_for_some_types,
    "keep_idempotency": test_keeping.test_keep_idempotency_is_how_long_a_key_is_remembered,
    "keep_inbox": test_effects.test_keep_inbox_is_how_long_applied_effects_are_remembered,
    "keep_audit": test_keeping.test_keep_audit_is_how_long_it_is_known_who_did_what,
    "keys_file": test_secrets.test_rotation_encrypts_all_by_the_first_key,
    "export_folder": test_keeping.test_dead_letters_over_the_count_are_exported_before_they_go,
    "journal": test_tracking.test_journal_is_the_folder_of_what_the_store_could_not_take,
    "journal_sync": test_tracking.test_journal_sync_is_when_it_is_flushed,
    "journal_size": test_tracking.test_journal_size_is_how_large_a_file_gets,
    "keep_journal": test_tracking.test_keep_journal_is_how_long_drained_files_stay,
    "service_folders": (
        test_services.test_a_document_reaches_no_file_of_the_worker_but_in_folders_for_that
    ),
    "redact": test_redacting.test_whoever_looks_sees_no_secret,
}
TERMS: Mapping[str, Callable[..., object]] = {
    "retry": test_terms.test_retry_is_how_a_destination_is_tried_again,
    "retry_overrides": test_terms.test_retry_overrides_hold_for_the_types_that_fit,
    "timeout": test_terms.test_timeout_ends_an_attempt,
    "concurrency": test_terms.test_concurrency_of_a_destination_is_its_own,
    "terminal": test_terms.test_terminal_lists_what_is_never_retried,
    "transient": test_terms.test_transient_lists_what_is_retried_all_the_same,
    "snooze_limit": test_terms.test_snooze_limit_bounds_how_often_a_delivery_is_put_off,
    "snooze_age": test_terms.test_snooze_age_bounds_for_how_long_a_delivery_is_put_off,
    "health": test_outages.test_a_healthy_answer_ends_the_open_time_early,
    "request_log": test_request_log.test_a_destination_of_code_is_logged_if_it_says_so,
}
LIMITS: Mapping[str, Callable[..., object]] = {
    "breaker": test_limits.test_an_open_breaker_holds_deliveries_and_spends_no_attempt,
    "rate": test_limits.test_rate_bounds_first_attempts_in_every_stretch_of_time,
    "retry_rate": test_limits.test_retry_rate_bounds_retries_and_nothing_else,
    "over_retry_rate": test_outages.test_over_retry_rate_gives_up_the_retries_above_it,
    "replay_rate": test_limits.test_replay_rate_bounds_replays_and_nothing_else,
    "retry_budget": test_limits.test_retry_budget_bounds_retries_by_the_first_attempts_there_were,
    "shared_rate": test_limits.test_destinations_that_share_a_rate_keep_to_it_together,
    "concurrency": test_limits.test_concurrency_of_a_destination_is_shared_by_all_workers,
    "disable_after": test_giving_up.test_a_destination_that_fails_for_long_is_paused_and_told_of,
}
REQUEST_LOG: Mapping[str, Callable[..., object]] = {
    "keep": test_request_log.test_a_service_says_how_many_are_kept,
    "share": test_request_log.test_a_share_of_the_successes_is_kept_and_every_failure,
}
BREAKER: Mapping[str, Callable[..., object]] = {
    "failures": test_limits.test_failures_is_how_many_in_a_row_open_the_breaker,
    "rate": test_limits.test_rate_of_a_breaker_is_the_share_of_failures_that_opens_it,
    "window": test_limits.test_window_is_how_far_back_the_share_is_counted,
    "least_calls": test_limits.test_least_calls_is_how_many_a_share_is_counted_of,
    "open_for": test_limits.test_open_for_is_how_long_until_the_first_probe,
    "longest_open": test_limits.test_longest_open_bounds_the_waits_between_probes,
    "successes": test_limits.test_successes_of_probes_close_the_breaker,
    "probes": test_limits.test_probes_is_how_many_are_under_way_while_it_is_half_open,
    "on_open": test_outages.test_on_open_gives_up_what_comes_due_while_the_breaker_is_open,
    "ramp": test_outages.test_ramp_is_how_long_the_pace_of_what_waited_grows,
}
HEALTH: Mapping[str, Callable[..., object]] = {
    "ask": test_outages.test_a_healthy_answer_ends_the_open_time_early,
    "every": test_outages.test_every_is_how_often_the_health_is_asked_for,
    "timeout": test_outages.test_timeout_of_a_check_is_how_long_an_answer_may_take,
    "method": test_health_checks.test_method_is_how_the_url_is_asked,
}
RATE: Mapping[str, Callable[..., object]] = {
    "per_second": test_limits.test_rate_bounds_first_attempts_in_every_stretch_of_time,
    "burst": test_limits.test_a_burst_lets_more_pass_at_once,
}
KEEP: Mapping[str, Callable[..., object]] = {
    "age": test_keeping.test_dead_letters_over_the_age_are_exported_before_they_go,
    "count": test_keeping.test_dead_letters_over_the_count_are_exported_before_they_go,
}
DESTINATION = {
    **LIMITS,
    **TERMS,
    "expire_after": test_expiring.test_the_earlier_of_life_time_and_deadline_counts,
    "environments": (
        test_environments.test_each_environment_has_its_limits_and_keeps_what_it_does_not_name
    ),
    "dead_letters": test_keeping.test_dead_letters_over_the_count_are_exported_before_they_go,
    "order": test_terms.test_order_keeps_the_events_of_a_key_apart,
    "profile": test_outages.test_profile_sets_breaker_retries_and_time_out_together,
    "auto_replay": test_auto_replay.test_cron_is_when_dead_letters_are_sent_again,
    "fairness": test_fairness.test_turn_is_how_many_of_a_tenant_follow_each_other,
    "tenant": test_fairness.test_a_destination_of_a_tenant_gets_only_its_events,
}
HANDLER = {
    **DESTINATION,
    "name": test_terms.test_name_is_what_a_destination_is_called,
    "batch": test_terms.test_batch_is_how_many_events_a_handler_takes,
    "keep_result": test_results.test_what_a_handler_returned_is_kept_with_its_delivery,
    "transactional": test_effects.test_transactional_commits_the_effect_with_the_delivery,
}
AUTO_REPLAY: Mapping[str, Callable[..., object]] = {
    "cron": test_auto_replay.test_cron_is_when_dead_letters_are_sent_again,
    "batch": test_auto_replay.test_batch_bounds_what_one_run_takes,
    "max_age": test_auto_replay.test_max_age_leaves_what_is_old_for_a_person,
    "cycles": test_auto_replay.test_cycles_bounds_how_often_one_letter_is_sent,
}
SCHEDULE: Mapping[str, Callable[..., object]] = {
    "cron": test_schedules.test_cron_is_when_events_are_published,
    "every": test_schedules.test_every_is_how_often_events_are_published,
    "type": test_schedules.test_cron_is_when_events_are_published,
    "timezone": test_schedules.test_timezone_is_where_the_times_of_a_day_are_read,
    "payload": test_schedules.test_cron_is_when_events_are_published,
    **dict.fromkeys(
        ("name", "key", "tenant", "priority"),
        test_schedules.test_name_key_tenant_and_priority_are_those_of_the_events,
    ),
    "missed": test_schedules.test_missed_says_what_comes_of_ticks_in_an_outage_of_the_store,
    "overlap": test_schedules.test_overlap_skips_ticks_while_the_last_event_is_under_way,
}
PACE: Mapping[str, Callable[..., object]] = {
    "canary": test_replays.test_canary_is_how_many_go_first,
    "largest_wave": test_replays.test_largest_wave_bounds_how_many_go_at_once,
    "failure_limit": test_replays.test_failure_limit_is_the_share_of_a_wave_that_may_fail,
    "rate": test_replays.test_rate_bounds_what_is_sent,
}
FAIRNESS: Mapping[str, Callable[..., object]] = {
    "turn": test_fairness.test_turn_is_how_many_of_a_tenant_follow_each_other,
    "weights": test_fairness.test_weights_are_how_many_turns_in_one_a_tenant_has,
    "rate": test_fairness.test_rate_bounds_the_attempts_of_each_tenant,
    "rates": test_fairness.test_rates_bound_some_tenants_and_hold_up_nobody_else,
}
RETRY: Mapping[str, Callable[..., object]] = {
    "max_attempts": test_terms.test_max_attempts_counts_the_first_try,
    "base": test_terms.test_base_is_the_first_wait,
    "factor": test_terms.test_factor_is_how_the_waits_grow,
    "cap": test_terms.test_cap_is_the_longest_wait,
    "jitter": test_terms.test_jitter_spreads_the_waits,
}


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        pytest.param(Settings.__struct_fields__, SETTINGS, id="Settings"),
        pytest.param(["store", *AppOptions.__annotations__], SETTINGS, id="Redrive"),
        pytest.param(Terms.__struct_fields__, TERMS, id="Terms"),
        pytest.param(DestinationOptions.__annotations__, DESTINATION, id="destination"),
        pytest.param(HandlerOptions.__annotations__, HANDLER, id="handler"),
        pytest.param(Retry.__struct_fields__, RETRY, id="Retry"),
        pytest.param(Limits.__struct_fields__, LIMITS, id="Limits"),
        pytest.param(RequestLog.__struct_fields__, REQUEST_LOG, id="RequestLog"),
        pytest.param(Breaker.__struct_fields__, BREAKER, id="Breaker"),
        pytest.param(Rate.__struct_fields__, RATE, id="Rate"),
        pytest.param(HealthCheck.__struct_fields__, HEALTH, id="HealthCheck"),
        pytest.param(AutoReplay.__struct_fields__, AUTO_REPLAY, id="AutoReplay"),
        pytest.param(
            ["cron", "every", "type", "timezone", *ScheduleOptions.__annotations__],
            SCHEDULE,
            id="schedule",
        ),
        pytest.param(Pace.__struct_fields__, PACE, id="Pace"),
        pytest.param(Keep.__struct_fields__, KEEP, id="Keep"),
        pytest.param(Fairness.__struct_fields__, FAIRNESS, id="Fairness"),
    ],
)
def test_every_key_is_listed_with_the_test_that_shows_its_effect(
    keys: Iterable[str], shown: Mapping[str, Callable[..., object]]
) -> None:
    """A key that nothing reads is a promise that nobody keeps."""
    assert sorted(keys) == sorted(shown)
    elsewhere = (
        test_auto_replay,
        test_effects,
        test_environments,
        test_expiring,
        test_fairness,
        test_giving_up,
        test_health_checks,
        test_keeping,
        test_limits,
        test_outages,
        test_redacting,
        test_replays,
        test_request_log,
        test_results,
        test_schedules,
        test_secrets,
        test_services,
        test_terms,
        test_threads,
        test_tracking,
    )
    collected = {name: test for one in elsewhere for name, test in vars(one).items()} | globals()
    assert all(collected[test.__name__] is test for test in shown.values())
