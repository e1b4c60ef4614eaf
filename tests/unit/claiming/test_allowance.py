"""Admit: what each destination may take now."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from redrive.claiming.allowance import LARGEST_SHARE, Allowance, Places
from redrive.model.destination import Destination
from redrive.policies.terms import Terms
from redrive.transport import Endpoint
from tests.unit.nowhere import Nowhere


def an_endpoint(
    name: str,
    *,
    concurrency: int | None = None,
    is_transactional: bool = False,
    is_threaded: bool = False,
    batch: int = 1,
) -> Endpoint:
    return Endpoint(
        destination=Destination(name=name, patterns=("*",)),
        terms=Terms(concurrency=concurrency),
        transport=Nowhere(batch),
        is_transactional=is_transactional,
        is_threaded=is_threaded,
    )


def admit(
    endpoints: Sequence[Endpoint],
    *,
    running: dict[str, int],
    concurrency: int,
    effects: int = 0,
    threads: int = 0,
    largest_share: float = LARGEST_SHARE,
) -> list[Allowance]:
    places = Places(
        concurrency=concurrency, effects=effects, threads=threads, largest_share=largest_share
    )
    room = places.room({one.destination.name: one for one in endpoints}, running)
    return [room.allow(one) for one in endpoints]


def test_the_only_destination_may_use_the_whole_worker() -> None:
    (allowance,) = admit([an_endpoint("only")], running={}, concurrency=100)

    assert allowance.total == 100


def test_a_full_destination_leaves_room_for_the_others() -> None:
    endpoints = [an_endpoint("slow"), an_endpoint("quick")]

    first = {one.destination: one.total for one in admit(endpoints, running={}, concurrency=100)}
    later = {
        one.destination: one.total
        for one in admit(endpoints, running={"slow": first["slow"]}, concurrency=100)
    }

    assert first["slow"] < 100
    assert later == {"slow": 0, "quick": 100 - first["slow"]}


def test_a_destinations_own_limit_holds() -> None:
    (allowance,) = admit([an_endpoint("only", concurrency=3)], running={"only": 2}, concurrency=100)

    assert allowance.total == 1


def test_every_destination_gets_a_turn_in_a_worker_smaller_than_their_number() -> None:
    endpoints = [an_endpoint(name) for name in ("a", "b", "c")]

    allowances = admit(endpoints, running={}, concurrency=1)

    assert [one.total for one in allowances] == [1, 1, 1]


def test_none_of_many_destinations_holds_more_than_its_share() -> None:
    endpoints = [an_endpoint(f"d{number}") for number in range(101)]

    def hung(running: int, **options: float) -> int:
        found = admit(endpoints, running={"d0": running}, concurrency=100, **options)  # type: ignore[arg-type]
        return found[0].total

    assert [hung(0), hung(20), hung(25)] == [25, 5, 0]
    assert hung(0, largest_share=0.5) == 50
    assert hung(0, largest_share=0.001) == 1


@given(
    concurrency=st.integers(1, 500),
    running=st.lists(st.integers(0, 50), min_size=1, max_size=8),
)
def test_no_allowance_exceeds_the_free_places(concurrency: int, running: list[int]) -> None:
    names = {f"d{number}": count for number, count in enumerate(running)}
    free = max(0, concurrency - sum(running))

    allowances = admit(
        [an_endpoint(name) for name in names], running=names, concurrency=concurrency
    )

    assert sorted(one.destination for one in allowances) == sorted(names)
    assert all(0 <= one.total <= free for one in allowances)


def test_transactional_destinations_share_what_the_store_has_room_for() -> None:
    endpoints = [
        an_endpoint("plain"),
        an_endpoint("one", is_transactional=True),
        an_endpoint("two", is_transactional=True),
    ]

    def admitted(running: dict[str, int]) -> dict[str, int]:
        found = admit(endpoints, running=running, concurrency=100, effects=5)
        return {one.destination: min(one.total, 9) for one in found}

    assert admitted({}) == {"plain": 9, "one": 2, "two": 2}
    assert admitted({"one": 4}) == {"plain": 9, "one": 1, "two": 1}
    assert admitted({"one": 4, "two": 1}) == {"plain": 9, "one": 0, "two": 0}


def test_an_effect_that_never_ends_starves_the_others_when_there_is_room_for_one() -> None:
    endpoints = [an_endpoint("plain"), an_endpoint("one", is_transactional=True)]
    served = {one.destination.name: one for one in endpoints}

    assert Places(concurrency=100, effects=1).starves(served, {"one": 1})
    assert not Places(concurrency=100, effects=2).starves(served, {"one": 1})


def test_what_is_served_no_longer_takes_its_own_places_alone() -> None:
    endpoints = [an_endpoint(f"d{number}") for number in range(10)]

    allowances = admit(endpoints, running={"gone": 1}, concurrency=10)

    assert [one.total for one in allowances] == [1] * 10


def threads_for(*endpoints: Endpoint, threads: int = 10, **running: int) -> list[int]:
    allowed = admit(endpoints, running=running, concurrency=100, threads=threads)
    return [one.total for one in allowed]


def test_those_that_run_in_threads_share_the_threads_and_leave_the_others_alone() -> None:
    slow, quick = an_endpoint("slow", is_threaded=True), an_endpoint("quick", is_threaded=True)
    loop = an_endpoint("loop")

    assert threads_for(slow, loop) == [10, 88]
    assert threads_for(slow, quick, loop)[:2] == [5, 5]
    assert threads_for(slow, quick, loop, slow=9)[:2] == [0, 1]
    assert threads_for(slow, quick, loop, slow=9, quick=1) == [0, 0, 83]


def test_a_batch_takes_one_thread() -> None:
    bulk = an_endpoint("bulk", is_threaded=True, batch=20)

    assert threads_for(bulk, threads=3) == [60]
    assert threads_for(bulk, threads=3, bulk=41) == [0]
    assert threads_for(bulk, threads=3, bulk=40) == [20]


@given(st.integers(1, 12), st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_hardly_more_is_claimed_than_there_are_threads(threads: int, running: list[int]) -> None:
    used: dict[str, int] = {}
    for place, count in enumerate(running):
        used[f"d{place}"] = min(count, threads - sum(used.values()))
    endpoints = [an_endpoint(name, is_threaded=True) for name in used]
    free = threads - sum(used.values())

    allowed = threads_for(*endpoints, threads=threads, **used)

    assert sum(allowed) <= max(free, len(endpoints)) + len(endpoints)
    assert free == 0 or any(allowed)
    assert free > 0 or not any(allowed)
