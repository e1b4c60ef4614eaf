"""Which declaration is in force, decided from values alone."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from redrive.model.destination import Destination, Order
from redrive.model.standing import Seen, Standing
from redrive.policies.declaring import (
    MOST_SEEN,
    as_found,
    brought,
    changed,
    differing,
    digest,
    removed,
    restored,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=15)
OLD = Destination(name="shop", patterns=("order.*",))
NEW = Destination(name="shop", patterns=("order.*", "refund.*"), order=Order.PARK)
OTHER = Destination(name="shop", patterns=("mail.*",))


def bring(
    standing: Standing | None,
    declared: Destination,
    *,
    by: str = "worker",
    live: tuple[Destination, ...] = (),
    now: datetime = NOW,
) -> Standing:
    return brought(
        standing,
        declared,
        is_worker=by == "worker",
        by_others=[digest(one) for one in live],
        now=now,
        lease=LEASE,
    )


@pytest.mark.parametrize("by", ["worker", "web"])
def test_a_new_destination_takes_effect_whoever_brings_it(by: str) -> None:
    assert bring(None, OLD, by=by).destination == OLD


def test_a_new_declaration_of_a_worker_takes_effect_whatever_the_live_declare() -> None:
    standing = bring(bring(None, OLD), NEW, live=(OLD,))

    assert standing.destination == NEW


def test_a_new_declaration_of_a_publisher_only_adds() -> None:
    standing = bring(bring(None, OLD), NEW, by="web")

    assert standing.in_force == OLD
    assert standing.added == ("refund.*",)
    assert standing.destination.order is Order.NONE


def test_what_a_publisher_declares_narrower_takes_nothing_away() -> None:
    standing = bring(bring(None, NEW), OLD, by="web")

    assert standing.destination == NEW


def test_patterns_are_added_once() -> None:
    third = Destination(name="shop", patterns=("refund.*", "mail.*"))
    standing = bring(bring(bring(None, OLD), NEW, by="web"), third, by="web")

    assert standing.added == ("refund.*", "mail.*")


def test_a_publisher_adds_again_nothing_that_a_whole_declaration_left_out() -> None:
    standing = bring(bring(None, OLD), NEW, by="web")
    standing = bring(standing, OTHER)

    assert bring(standing, NEW, by="web").destination == OTHER


def test_one_seen_before_waits_for_the_live() -> None:
    standing = bring(bring(None, OLD), NEW)

    assert bring(standing, OLD, live=(NEW, OLD)).destination == NEW
    assert bring(standing, OLD, live=(OLD, OTHER)).destination == OLD


def test_one_seen_before_never_takes_effect_through_a_publisher() -> None:
    standing = bring(bring(None, OLD), NEW)

    assert bring(standing, OLD, by="web") == standing


def test_one_that_comes_back_stays_for_a_lease() -> None:
    standing = bring(bring(None, OLD), NEW)
    standing = bring(standing, OLD)

    early = bring(standing, NEW, now=NOW + LEASE - timedelta(microseconds=1))
    assert early.destination == OLD
    assert bring(standing, NEW, now=NOW + LEASE).destination == NEW
    assert bring(standing, OTHER).destination == OTHER


def test_a_removal_stands_against_all_that_was_seen_or_offered() -> None:
    standing = removed(bring(bring(None, OLD), NEW, by="web"))

    for declared in (OLD, NEW):
        for by in ("worker", "web"):
            assert bring(standing, declared, by=by).is_removed


def test_a_removal_stands_against_one_that_was_never_brought_by_a_worker() -> None:
    standing = removed(bring(None, OLD, by="web"))

    assert bring(standing, OLD).is_removed


@pytest.mark.parametrize("by", ["worker", "web"])
def test_one_never_seen_undoes_a_removal(by: str) -> None:
    standing = bring(removed(bring(None, OLD)), OTHER, by=by)

    assert (standing.is_removed, standing.destination) == (False, OTHER)


def test_what_is_restored_is_as_it_was_and_goes_on_as_usual() -> None:
    before = bring(bring(None, OLD), NEW, by="web")
    standing = restored(removed(before))

    assert standing.destination == before.destination
    assert bring(standing, OTHER).destination == OTHER


def test_nothing_is_written_when_the_same_is_brought_again() -> None:
    standing = bring(None, OLD)

    assert bring(standing, OLD, live=(OLD,)) == standing
    assert bring(standing, OLD, by="web") == standing


def test_what_was_seen_is_bounded_and_what_is_in_force_is_always_known() -> None:
    standing = bring(None, OLD)
    for number in range(2 * MOST_SEEN):
        offered = Destination(name="shop", patterns=(f"type-{number}",))
        standing = bring(standing, offered, by="web")

    assert len(standing.seen) == MOST_SEEN
    gone = removed(standing)
    assert bring(gone, OLD).is_removed


def test_a_release_without_standings_has_what_it_registered_in_force() -> None:
    """It writes the destination and knows nothing of the rest; workers then look again."""
    kept = bring(bring(None, OLD), NEW)

    found = as_found(OTHER, is_removed=False, kept=kept)

    assert (found.in_force, found.added) == (OTHER, ())
    assert bring(found, NEW).destination == NEW
    assert bring(found, NEW, live=(OTHER,)).destination == OTHER


def test_a_standing_is_found_as_it_was_kept() -> None:
    kept = bring(bring(None, OLD), NEW, by="web")

    assert as_found(kept.destination, is_removed=False, kept=kept) == kept
    text = msgspec.json.encode(kept)
    assert msgspec.json.decode(text, type=Standing) == kept


def test_what_was_removed_before_there_were_standings_stays_removed() -> None:
    found = as_found(OLD, is_removed=True, kept=None)

    assert bring(found, OLD).is_removed
    assert not bring(found, NEW).is_removed


def test_what_was_in_force_before_there_were_standings_counts_as_seen() -> None:
    found = as_found(OLD, is_removed=False, kept=None)
    standing = bring(found, NEW)

    assert Seen(digest(OLD), is_whole=True) in standing.seen
    assert bring(standing, OLD, live=(NEW,)).destination == NEW


def test_the_difference_names_what_has_changed() -> None:
    standing = bring(None, OLD)

    assert changed(None, standing) == "new"
    said = changed(standing, bring(standing, NEW))
    assert said == 'patterns[1]: nothing → "refund.*"; order: "none" → "park"'
    assert changed(removed(standing), standing) == "no longer removed"


def test_a_long_difference_is_cut() -> None:
    long = Destination(name="shop", patterns=tuple(f"type-{number}" for number in range(500)))
    standing = bring(None, OLD)

    assert len(changed(standing, bring(standing, long))) == 1_000


def test_who_declares_another_is_told_by_the_digests() -> None:
    standings = {"shop": bring(None, OLD), "gone": removed(bring(None, OTHER))}
    declared = {"shop": digest(NEW), "gone": digest(OTHER), "unknown": digest(OLD)}

    assert differing(declared, standings) == ("gone", "shop")
    assert differing({"shop": digest(OLD)}, standings) == ()


def test_what_older_releases_did_not_know_changes_no_digest_where_it_says_nothing() -> None:
    """Workers of two releases that declare the same must agree about it."""
    plain = Destination(name="billing", patterns=("order.*",))
    expiring = Destination(name="billing", patterns=("order.*",), expire_after=timedelta(hours=1))

    assert digest(plain) == "ace5385db9a3ea4e70aa"
    passing = Destination(name="billing", patterns=("order.*",), passing=(("order.paid", True),))
    assert digest(plain) not in {digest(expiring), digest(passing)}
