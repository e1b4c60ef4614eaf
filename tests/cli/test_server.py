"""Commands through a server: the same words as on the store itself, and a refusal for the rest."""

from __future__ import annotations

import base64

import pytest

from redrive import ConfigurationError, Redrive, UsageError
from redrive.cli.session import app_at
from redrive.client import AsyncClient
from tests.cli.remote import SERVER, client_of
from tests.cli.shell import Shell, Shop
from tests.cli.test_acts import (
    test_many_that_were_resolved_are_reopened_by_filters,
    test_prioritise_changes_the_priority,
    test_replay_of_all_that_match_leaves_the_others,
    test_reschedule_moves_the_due_time,
    test_what_is_no_dead_letter_is_left_alone_and_said,
)
from tests.cli.test_destinations import (
    test_a_breaker_is_opened_by_hand_for_a_while,
    test_keys_that_wait_behind_a_dead_letter_are_listed,
    test_set_limits_are_json_for_programs,
)
from tests.cli.test_doctor import test_the_findings_are_json_for_programs
from tests.cli.test_editing import letter, test_an_edit_takes_standard_input_and_answers_in_json
from tests.cli.test_events import (
    test_an_event_is_shown_with_the_story_of_each_delivery,
    test_each_command_about_a_delivery_takes_the_id_of_its_event,
    test_what_is_blanked_of_an_event_is_revealed_on_record,
)
from tests.cli.test_filters import (
    test_a_destination_that_nobody_knows_is_refused_with_the_nearest,
)
from tests.cli.test_groups import group, test_groups_are_shown_with_what_their_letters_share
from tests.cli.test_inspect import (
    test_a_dead_letter_is_shown_with_its_whole_story,
    test_a_list_goes_on_at_the_cursor,
    test_the_status_counts_by_destination,
)
from tests.cli.test_keeping import test_dead_letters_are_exported_to_a_file_and_come_back
from tests.cli.test_projections import projecting, test_one_begins_anew_when_somebody_agrees
from tests.cli.test_publish import (
    test_publish_carries_every_attribute,
    test_publish_may_expect_a_version_of_the_key,
)
from tests.cli.test_replays import test_a_replay_is_started_and_seen_to_its_end
from tests.cli.test_rerouting import (
    test_a_new_destination_is_backfilled,
    test_what_waits_is_moved_to_another_destination,
)
from tests.cli.test_schedules import nightly, test_one_is_shown_with_all_of_it_but_secrets
from tests.cli.test_tenants import test_tenants_are_listed_with_what_they_have_and_got
from tests.cli.test_top import test_one_frame_is_json_for_programs

__all__ = [
    "group",
    "letter",
    "nightly",
    "projecting",
    "test_a_breaker_is_opened_by_hand_for_a_while",
    "test_a_dead_letter_is_shown_with_its_whole_story",
    "test_a_destination_that_nobody_knows_is_refused_with_the_nearest",
    "test_a_list_goes_on_at_the_cursor",
    "test_a_new_destination_is_backfilled",
    "test_a_replay_is_started_and_seen_to_its_end",
    "test_an_edit_takes_standard_input_and_answers_in_json",
    "test_an_event_is_shown_with_the_story_of_each_delivery",
    "test_dead_letters_are_exported_to_a_file_and_come_back",
    "test_each_command_about_a_delivery_takes_the_id_of_its_event",
    "test_groups_are_shown_with_what_their_letters_share",
    "test_keys_that_wait_behind_a_dead_letter_are_listed",
    "test_many_that_were_resolved_are_reopened_by_filters",
    "test_one_begins_anew_when_somebody_agrees",
    "test_one_frame_is_json_for_programs",
    "test_one_is_shown_with_all_of_it_but_secrets",
    "test_prioritise_changes_the_priority",
    "test_publish_carries_every_attribute",
    "test_publish_may_expect_a_version_of_the_key",
    "test_replay_of_all_that_match_leaves_the_others",
    "test_reschedule_moves_the_due_time",
    "test_set_limits_are_json_for_programs",
    "test_tenants_are_listed_with_what_they_have_and_got",
    "test_the_findings_are_json_for_programs",
    "test_the_status_counts_by_destination",
    "test_what_is_blanked_of_an_event_is_revealed_on_record",
    "test_what_is_no_dead_letter_is_left_alone_and_said",
    "test_what_waits_is_moved_to_another_destination",
]
"""Those of other modules are run again here, with a server in place of the store."""


@pytest.fixture(params=["sqlite"])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store of one kind: what differs between them is behind the server."""
    return str(request.getfixturevalue("sqlite_url"))


@pytest.fixture
def shop(store: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop before whose store stands a server; commands are told of that alone."""
    shop = Shop(store)
    shop.publish()

    def connect(server: str) -> AsyncClient:
        assert server == SERVER
        return client_of(shop.url)

    monkeypatch.delenv("REDRIVE_STORE", raising=False)
    monkeypatch.setenv("REDRIVE_SERVER", SERVER)
    monkeypatch.setattr("redrive.cli.session.connect", connect)
    return shop


def test_a_server_may_be_named_by_an_option(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDRIVE_SERVER")
    shop.deliver({"error": "refused"})

    answer = shell("dlq", "list", "--server", SERVER)

    assert "refused" in answer.out, answer.err


def test_who_acts_is_known_to_the_server(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    refused = shell("dlq", "replay", "1", "--by", "ann")
    done = shell("dlq", "replay", "1", "--why", "fixed")

    assert (refused.code, done.code) == (2, 0)
    assert "leave by= (or --by) out" in refused.err
    assert [one["by"] for one in shell("audit", "--json").json["entries"]] == ["local"]


def test_encryption_is_begun_and_ended_by_whom_the_server_knows(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_KEYS", f"k1:{base64.b64encode(bytes(32)).decode()}")

    begun = shell("encryption", "on", "--why", "addresses are in there")
    ended = shell("encryption", "off", "--why", "the disk is encrypted")

    assert (begun.code, ended.code) == (0, 0), begun.err + ended.err
    assert {one["by"] for one in shell("audit", "--json").json["entries"]} == {"local"}


def test_a_server_and_a_store_at_once_are_refused(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_STORE", shop.url)

    unclear = shell("status")
    clear = shell("status", "--store", shop.url)

    assert (unclear.code, clear.code) == (2, 0)
    assert "both set" in unclear.err


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["init"], "A store is made where it is"),
        (["user", "list"], "do it where the store is"),
        (["dlq", "export", "--redacted"], "where the store is"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_needs_the_store_itself_says_so(
    command: list[str], why: str, shell: Shell, shop: Shop
) -> None:
    answer = shell(*command)

    assert answer.code == 2, answer
    assert why in answer.err
    assert len(answer.err.splitlines()) == 1


def test_servers_and_workers_say_that_they_need_the_store(shop: Shop) -> None:
    with pytest.raises(UsageError, match="This needs the store itself"):
        app_at(None)
    with pytest.raises(ConfigurationError, match="the store itself is needed"):
        Redrive(SERVER)


def test_a_prune_says_whose_settings_hold(shell: Shell, shop: Shop) -> None:
    shop.deliver({})

    assert shell("prune", "--dry-run").out == "Nothing was kept longer than it has to be.\n"


def test_a_server_that_is_not_there_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.cli.session._PATIENCE", "0s")

    answer = shell("status", "--server", "http://127.0.0.1:1")

    assert answer.code == 3
    assert "http://127.0.0.1:1 cannot be reached" in answer.err
