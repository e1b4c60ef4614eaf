"""The conformance suite is worth something: it rejects every broken store, and no sound one."""

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from itertools import product
from typing import Any

import pytest

from redrive.stores.memory import MemoryStore
from tests.conformance import MakeStore, StoreConformance, World
from tests.stores.mutants import MUTANTS

PROMISES = sorted(name for name in dir(StoreConformance) if name.startswith("test_"))
_STEM = 5
FOUND_BY = {
    "ReadsAPartitionAsAWhole": "test_each_event_is_read_for_the_partition_of_its_key",
    "ReadsAKeyForTwoPartitions": "test_each_event_is_read_for_the_partition_of_its_key",
    "HasTwoOwnersOfAPartition": "test_a_partition_has_one_owner_at_a_time",
    "NeverSharesPartitions": "test_workers_share_partitions_evenly_and_leave_them_be",
    "TakesEveryPartition": "test_workers_share_partitions_evenly_and_leave_them_be",
    "MovesAllCheckpoints": "test_partitions_go_on_each_by_itself",
    "PrunesByTheFastestPartition": "test_what_one_partition_has_not_read_is_kept",
    "SwapsOneOfItsPartitions": (
        "test_readers_get_a_version_once_all_its_partitions_have_caught_up"
    ),
    "EmptiesForEachPartition": "test_after_a_reset_one_partition_empties_for_all",
    "ResetsOnePartition": "test_after_a_reset_one_partition_empties_for_all",
    "DividesWhereverItStands": "test_partitions_that_are_not_equally_far_stay_as_many",
    "ReachesByThePartitionOfOthers": ("test_an_event_is_reached_when_its_own_partition_is_past_it"),
    "KeepsEveryRequest": "test_of_requests_only_the_last_are_kept",
    "ForgetsRequestsOfOthers": "test_requests_are_kept_as_they_were_the_latest_first",
    "NeverGivesUpADestination": (
        "test_what_has_failed_for_long_is_paused_and_has_as_long_once_it_is_resumed"
    ),
    "CallsPastTheGate": "test_an_open_breaker_keeps_requests_out_and_says_why",
    "CountsNoCalls": "test_of_requests_at_once_no_more_pass_than_may",
    "CountsCallsForEver": "test_a_request_whose_end_nobody_tells_ends_with_its_lease",
    "HearsOfNoEndOfCalls": "test_retries_of_requests_are_charged_as_retries",
    "CallsForPausedTenants": "test_nothing_is_asked_for_a_tenant_who_is_paused",
    "RendersWhatWaitsAgain": "test_what_is_to_be_sent_keeps_its_version",
    "ForgetsTheRuleOfADelivery": "test_each_rule_gives_a_delivery_of_its_own",
    "GivesVersionsOfRulesAgain": "test_every_version_is_kept_and_none_is_given_again",
    "KeepsOnlyTheLastVersionOfARule": "test_every_version_is_kept_and_none_is_given_again",
    "ChangesServicesWhateverThePast": "test_a_change_worked_out_from_what_is_past_changes_nothing",
    "LetsServicesTakeNamesOfCode": "test_a_name_that_code_declares_is_no_services",
    "DropsWhatWaitsForADeletedService": (
        "test_a_deleted_service_gets_nothing_more_and_what_waits_is_held"
    ),
    "ReadsRulesOfEveryService": "test_services_are_read_with_their_own_rules_alone",
    "ChangesServicesUnseen": "test_a_change_is_on_record",
    "HoldsOnToNothing": "test_nobody_has_crashed_when_what_was_left_behind_runs_out",
    "TellsNothingOfWhatIsLeft": "test_what_a_worker_leaves_behind_can_be_held_and_joins_its_story",
    "TellsTwiceOfWhatIsLeft": "test_what_a_worker_leaves_behind_can_be_held_and_joins_its_story",
    "TakesEveryOwnerForDead": "test_a_worker_heard_of_after_its_lease_ended_is_alive",
    "TakesNoTokensFromTheRamp": "test_what_has_waited_goes_out_at_a_pace_that_grows",
    "BelievesAnUnhealthyDestination": "test_the_next_check_comes_after_a_while",
    "GivesUpEveryKind": "test_retries_above_their_rate_fail_if_they_are_not_to_wait",
    "BlamesOneDestinationForAll": "test_whatever_ends_a_delivery_its_group_is_kept",
    "CountsNoNewcomers": "test_what_fails_later_is_counted_and_not_sent",
    "DecidesAndSendsInTwoSteps": "test_many_who_drive_it_at_once_exceed_no_wave",
    "ReplaysResolvedLetters": "test_what_somebody_else_dealt_with_is_skipped",
    "CountsOnlyWhileReplaysRun": "test_a_cancelled_replay_leaves_the_rest_alone",
    "AutoReplaysIgnoreGates": "test_nothing_begins_while_the_destination_is_held",
    "AutoReplaysOverlap": "test_nothing_begins_while_the_last_one_goes_on",
    "AutoReplaysIgnoreAge": "test_what_is_too_old_is_left_for_a_person",
    "AutoReplaysTakeEverything": "test_a_run_takes_a_batch_in_publish_order",
    "TicksByAPastVersion": "test_a_tick_of_another_version_is_not_published",
    "TakesNamesOfSchedulesOfCode": "test_schedules_change_together_or_not_at_all",
    "KeepsTickingWhatIsDeleted": "test_a_tick_of_a_deleted_schedule_is_not_published",
    "ForgetsSchedulesOfTheStore": "test_what_code_has_declared_can_be_forgotten",
    "PublishesATickTwice": "test_a_tick_is_not_published_again_when_all_goes_on",
    "LosesATickBetweenItsAdvanceAndItsEvent": ("test_what_cannot_be_stored_lets_the_schedule_stay"),
    "PublishesFirstAndGoesOnAfterwards": ("test_of_those_who_publish_a_tick_at_once_one_does"),
    "TicksWhilePaused": "test_a_paused_schedule_publishes_nothing",
    "MissesWhatAPauseWasFor": ("test_what_a_paused_schedule_would_have_ticked_was_not_missed"),
    "RunsAgainAndAgain": ("test_what_a_person_asks_for_is_published_once_and_moves_no_tick"),
    "LosesTrendsAsItRollsThemUp": "test_what_is_rolled_up_is_neither_lost_nor_counted_twice",
    "RollsUpTrendsTooEarly": "test_trends_are_kept_by_less_time_the_newer_they_are",
    "LetsTrendsPileUp": "test_trends_are_kept_by_less_time_the_newer_they_are",
    "KeepsTrendsForEver": "test_trends_are_forgotten_after_a_week",
    "KeepsNoTrendOfAllTogether": "test_what_became_of_deliveries_is_added_up_by_the_minute",
    "AddsUpHowLateThingsAre": "test_what_became_of_deliveries_is_added_up_by_the_minute",
    "FollowsTheLastWhoDeclaresASchedule": "test_one_declaration_of_a_schedule_is_in_force",
    "CountsNoVersionsOfSecrets": "test_a_secret_that_is_set_again_is_the_next_version",
    "KeepsTheFirstOfASecret": "test_a_secret_that_is_set_again_is_the_next_version",
    "EncryptsOverANewerSecret": "test_nobody_encrypts_what_has_changed_meanwhile",
    "BringsBackADeletedSecret": "test_nobody_encrypts_what_has_changed_meanwhile",
    "TakesARotationForAChange": "test_a_secret_that_is_encrypted_otherwise_stays_what_it_is",
    "WritesWhatIsSealedIntoTheAuditLog": (
        "test_each_change_of_a_secret_is_on_record_by_its_name_alone"
    ),
    "DeletesSecretsSilently": "test_each_change_of_a_secret_is_on_record_by_its_name_alone",
    "ForgetsThatATokenWasRevoked": (
        "test_when_a_token_was_used_is_remembered_and_changes_nothing_else"
    ),
    "RevokesATokenTwice": "test_a_token_is_revoked_once_however_many_do",
    "RevokesAllTokensOfAName": "test_a_revoked_token_is_revoked_for_whoever_asks_next",
    "GivesATokensIdAgain": "test_an_id_of_a_token_is_given_once",
    "MakesTokensThatNeverExpire": ("test_a_token_is_kept_with_what_it_allows_and_who_made_it"),
    "ForgetsTokensAsSoonAsTheyEnd": "test_tokens_that_ended_long_ago_are_forgotten",
    "GoesByTheTimeATokenWasMade": "test_the_present_of_a_token_is_the_stores",
    "WidensWhatATokenAllows": "test_a_token_is_kept_with_what_it_allows_and_who_made_it",
    "WritesDigestsIntoTheAuditLog": (
        "test_who_made_and_revoked_a_token_is_on_record_without_its_digest"
    ),
    "KeepsSessionsWhenThePasswordChanges": (
        "test_a_changed_password_ends_the_sessions_of_that_user_alone"
    ),
    "EndsEverybodysSessions": "test_a_changed_password_ends_the_sessions_of_that_user_alone",
    "OpensSessionsByAnOldPassword": "test_nobody_logs_in_by_a_password_of_the_past",
    "CountsLoginsAfterwards": "test_of_those_who_try_to_log_in_at_once_only_so_many_may",
    "NeverForgivesLogins": "test_who_has_logged_in_begins_anew",
    "RenewsAPasswordThatHasChanged": "test_a_password_is_kept_otherwise_unless_it_has_changed",
    "GivesAUsersNameAgain": "test_a_name_of_a_user_is_given_once",
    "LetsSessionsLastWhileTheyAreSeen": ("test_what_is_seen_of_a_session_moves_its_idle_end_alone"),
    "KeepsClosedSessions": "test_a_closed_session_is_gone",
    "ForgetsEditsOnReplay": "test_every_later_try_carries_the_edited_payload",
    "PrunesTooEarly": "test_what_is_not_old_enough_stays",
    "FollowsOneAliasOnly": "test_a_group_is_found_by_the_names_of_all_its_past",
    "ForgetsTheWholeAuditLog": "test_what_people_did_is_remembered_for_as_long_as_it_says",
    "CountsFromTheFailureOfWhatWasDeleted": (
        "test_the_event_of_a_discarded_letter_is_kept_for_a_while"
    ),
    "KeepsTurnsForEver": "test_a_watch_is_one_workers_until_it_ends",
    "LooksAwayWhenSecretsAreRevealed": "test_what_changed_nothing_can_be_on_record_too",
    "MovesToTheEnd": "test_a_moved_dead_letter_parks_its_key",
    "GoesOnCountingWhatIsReplayed": "test_whatever_is_done_the_figures_equal_a_recount",
    "BackfillsWithoutCounting": "test_an_event_somebody_wants_now_is_no_longer_unrouted",
    "IgnoresTheFilter_key": "test_deliveries_are_found_by_key_and_tenant",
    "IgnoresTheFilter_reason": "test_deliveries_are_found_by_reason_and_error",
    "IgnoresTheFilter_error_class": "test_deliveries_are_found_by_reason_and_error",
    "IgnoresTheFilter_with_resolved": "test_resolved_dead_letters_are_left_out_unless_asked_for",
    "ReadsMoreThanWasAsked": "test_the_log_is_read_on_from_a_position",
    "CountsPositionsAnew": "test_positions_are_never_given_twice",
    "MovesWhatIsGivenToTheEnd": "test_what_was_read_keeps_its_place",
    "CompletesWhatCameBefore": "test_there_is_nothing_to_catch_up_with_when_routes_were_current",
}
"""The promise that some mutants are known to break; without it they would be hunted for long."""


def cases_of(promise: str) -> Iterator[dict[str, Any]]:
    """Go through the arguments that a promise takes besides a world, as its marks name them."""
    marks = getattr(getattr(StoreConformance, promise), "pytestmark", ())
    choices = [
        [(mark.args[0], value) for value in mark.args[1]]
        for mark in marks
        if mark.name == "parametrize"
    ]
    for chosen in product(*choices):
        arguments: dict[str, Any] = {}
        for names, value in chosen:
            several = names.replace(" ", "").split(",") if isinstance(names, str) else names
            arguments |= zip(several, [value] if len(several) == 1 else value, strict=True)
        yield arguments


def likeliest(mutant: type[MemoryStore]) -> Sequence[str]:
    """Return all promises, that first which has found it, then those that speak of its name."""
    words = {one[:_STEM].lower() for one in re.findall("[A-Z][a-z]+", mutant.__name__)}

    def likelihood(promise: str) -> tuple[bool, int]:
        shared = words.intersection(one[:_STEM] for one in promise.split("_"))
        return promise == FOUND_BY.get(mutant.__name__), len(shared)

    return sorted(PROMISES, key=likelihood, reverse=True)


async def broken_promises(
    make_store: MakeStore, promises: Sequence[str] = PROMISES
) -> AsyncGenerator[tuple[str, Exception]]:
    suite = StoreConformance()
    for promise in promises:
        for arguments in cases_of(promise):
            async with World.opened(make_store, history=suite.history) as world:
                try:
                    await getattr(suite, promise)(world, **arguments)
                except pytest.fail.Exception as failed:
                    yield promise, AssertionError(failed)
                except Exception as failed:  # noqa: BLE001 - the caller judges it
                    yield promise, failed


async def test_the_unbroken_store_keeps_every_promise() -> None:
    assert [broken async for broken in broken_promises(MemoryStore)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_the_suite_rejects(mutant: type[MemoryStore]) -> None:
    """Only an assertion counts: a test that merely stumbles tells an author nothing."""
    async with aclosing(broken_promises(mutant, likeliest(mutant))) as broken:
        async for _, failed in broken:
            if isinstance(failed, AssertionError):
                return

    pytest.fail(f"{mutant.__name__} keeps every promise that the suite checks")
