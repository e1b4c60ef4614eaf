"""The turns of tenants, with values: nobody waits for more than a round, and nothing is wasted."""

from datetime import UTC, datetime, timedelta
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from redrive.claiming.round_robin import (
    PLENTY,
    Line,
    Share,
    affordable,
    in_turn,
    next_token,
    serve,
    spent,
    urgency,
)
from redrive.model.gate import Bucket, Rotation
from redrive.model.limits import Rate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORK = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 30), min_size=1)


class Tenants:
    """Tenants with so much work each, served claim after claim."""

    def __init__(
        self,
        work: dict[str, int],
        *,
        turns: dict[str, int] | None = None,
        tokens: dict[str, int] | None = None,
    ) -> None:
        self.work = dict(work)
        self.turns = turns or {}
        self.tokens = tokens or {}
        self.rotation = Rotation()

    def turn(self, tenant: str) -> int:
        return self.turns.get(tenant, 3)

    def claim(self, room: int) -> Share[str]:
        names = in_turn([name for name, count in self.work.items() if count], self.rotation)
        lines = [
            Line(
                tenant=name,
                turn=self.turn(name),
                work=[name] * self.work[name],
                tokens=self.tokens.get(name, PLENTY),
            )
            for name in names
        ]
        serving = serve(lines, self.rotation, room=room)
        self.rotation = serving.rotation
        for name in serving.chosen:
            self.work[name] -= 1
        return serving


@given(WORK, st.lists(st.integers(1, 20), min_size=1, max_size=20), st.integers(1, 4))
def test_nobody_gets_more_than_a_turn_while_others_wait(
    work: dict[str, int], rooms: list[int], weight: int
) -> None:
    tenants = Tenants(work, turns={"b": 3 * weight})
    served: list[str] = []
    for room in rooms:
        served += tenants.claim(room).chosen

    left = dict(work)
    for name, run in groupby(served):
        count = len(list(run))
        others = any(count and other != name for other, count in left.items())
        assert count <= tenants.turn(name) or not others
        left[name] -= count


@given(WORK, st.lists(st.integers(1, 20), max_size=20), st.integers(1, 20))
def test_one_event_starts_within_one_round(
    work: dict[str, int], before: list[int], room: int
) -> None:
    tenants = Tenants(work)
    for some in before:
        tenants.claim(some)
    tenants.work["new"] = 1
    others = sum(1 for name, count in tenants.work.items() if count and name != "new")

    served: list[str] = []
    while "new" not in served:
        served += tenants.claim(room).chosen

    assert served.index("new") <= 3 * others


@given(WORK, st.integers(1, 100))
def test_all_the_room_is_used_as_long_as_there_is_work(work: dict[str, int], room: int) -> None:
    assert len(Tenants(work).claim(room).chosen) == min(room, sum(work.values()))


@given(WORK, st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_how_much_is_asked_for_at_a_time_makes_no_difference(
    work: dict[str, int], rooms: list[int]
) -> None:
    """As long as nobody runs out of work, claims of any size are cuts through one sequence."""
    endless = dict.fromkeys(work, 1_000)
    bit_by_bit, at_once = Tenants(endless), Tenants(endless)

    served = [name for room in rooms for name in bit_by_bit.claim(room).chosen]

    assert served == list(at_once.claim(sum(rooms)).chosen)
    assert bit_by_bit.rotation == at_once.rotation


@given(WORK, st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 5)))
def test_own_tokens_bound_a_tenant_and_nobody_else(
    work: dict[str, int], tokens: dict[str, int]
) -> None:
    serving = Tenants(work, tokens=tokens).claim(1_000)

    for name, count in work.items():
        assert serving.chosen.count(name) == min(count, tokens.get(name, count))
    assert sorted(serving.spent) == sorted(
        name for name, count in work.items() if count > tokens.get(name, count)
    )


def test_rounds_are_counted_when_the_turns_begin_again() -> None:
    tenants = Tenants({"a": 9, "b": 9})

    rounds = [tenants.claim(3).rotation.round for _ in range(5)]

    assert rounds == [0, 0, 1, 1, 2]


def test_a_turn_that_was_cut_short_by_the_room_goes_on() -> None:
    tenants = Tenants({"a": 9, "b": 9})

    assert "".join("".join(tenants.claim(2).chosen) for _ in range(4)) == "aaabbbaa"


def test_a_turn_ends_when_the_work_does() -> None:
    tenants = Tenants({"a": 1, "b": 9})
    tenants.claim(2)
    tenants.work["a"] = 9

    assert "".join(tenants.claim(5).chosen) == "bbaaa"


def test_what_a_tenant_got_is_told_with_its_last_run() -> None:
    tenants = Tenants({"a": 8, "b": 4})
    first = tenants.claim(7)
    second = tenants.claim(7)

    assert [(one.tenant, one.count, one.in_a_row, one.round) for one in first.served] == [
        ("a", 4, 1, 1),
        ("b", 3, 3, 0),
    ]
    assert [(one.tenant, one.count, one.in_a_row) for one in second.served] == [
        ("a", 4, 2),
        ("b", 1, 1),
    ]


def test_without_any_tenant_there_is_no_rotation() -> None:
    line = Line(tenant="", turn=3, work=list("xxxx"))

    serving = serve([line], Rotation(), room=3)

    assert (serving.chosen, serving.served, serving.rotation) == (list("xxx"), (), Rotation())


def test_scarce_tokens_go_round_even_if_the_room_does_not() -> None:
    """One has fresh work all the time, the other only retries: both get tokens for retries."""
    rotation, retried = Rotation(), []
    for _ in range(6):
        lines = [
            Line(tenant=name, turn=1, work=work)
            for name in in_turn(["a", "b"], rotation)
            for work in [["a retry", "a fresh"] if name == "a" else ["b retry", "b retry"]]
        ]
        tokens = {"retry": 1, "fresh": 9}

        def admit(one: str, tokens: dict[str, int] = tokens) -> bool:
            kind = one.split()[1]
            tokens[kind] -= 1
            return tokens[kind] >= 0

        def is_exhausted(one: str, tokens: dict[str, int] = tokens) -> bool:
            return tokens[one.split()[1]] <= 0

        serving = serve(lines, rotation, room=9, admit=admit, is_exhausted=is_exhausted)
        rotation = serving.rotation
        retried += [one for one in serving.chosen if "retry" in one]

    assert sorted(retried) == ["a retry"] * 3 + ["b retry"] * 3


def test_more_is_longed_for_only_where_the_line_was_cut() -> None:
    cut = Line(tenant="a", turn=3, work=list("aaa"), is_cut=True)
    whole = Line(tenant="b", turn=3, work=list("bb"))

    assert serve([cut, whole], Rotation(), room=5).longing == []
    assert serve([cut, whole], Rotation(), room=6).longing == ["a"]
    assert serve([cut, whole], Rotation(), room=6, is_everybody=False).longing == []


@given(
    st.floats(0.1, 50),
    st.floats(1, 20),
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 30)), max_size=30),
)
def test_over_any_window_a_tenant_keeps_to_its_rate(
    per_second: float, burst: float, steps: list[tuple[int, int]]
) -> None:
    rate, bucket, now = Rate(per_second=per_second, burst=burst), Bucket(), NOW
    passed: list[tuple[datetime, int]] = []
    for pause, wanted in steps:
        now += timedelta(milliseconds=pause)
        count = min(wanted, affordable(bucket, rate, now=now))
        bucket = spent(bucket, rate, count, now=now)
        passed.append((now, count))

    for start, (begin, _) in enumerate(passed):
        for end, _ in passed[start:]:
            within = sum(count for at, count in passed if begin <= at <= end)
            assert within <= per_second * (end - begin).total_seconds() + burst + 1e-3


def test_the_wait_for_a_token_is_as_long_as_said() -> None:
    rate = Rate(per_second=3)
    bucket = spent(Bucket(), rate, 1, now=NOW)

    again_at = next_token(bucket, rate, now=NOW)

    assert affordable(bucket, rate, now=again_at - timedelta(milliseconds=1)) == 0
    assert affordable(bucket, rate, now=again_at) == 1


def test_a_tenant_does_not_stand_still_when_the_clock_was_set_back() -> None:
    rate, empty = Rate(per_second=2.0, burst=5.0), Bucket(0.0, NOW)
    back = NOW - timedelta(hours=1)

    assert affordable(empty, rate, now=back) == 1
    after = spent(empty, rate, 1, now=back)
    assert affordable(after, rate, now=back) == 0
    assert next_token(after, rate, now=back) == back + timedelta(seconds=0.5)


def test_a_tenant_gets_nothing_twice_for_who_is_a_moment_behind() -> None:
    rate, bucket = Rate(per_second=1.0, burst=9.0), Bucket(2.0, NOW)

    after = spent(bucket, rate, 1, now=NOW - timedelta(seconds=5))

    assert affordable(after, rate, now=NOW) == 1


def test_urgency_grows_with_the_rounds_and_ends_at_one() -> None:
    assert [urgency(rounds) for rounds in (0, 1, 3, 4, 5, 500)] == [5, 4, 2, 1, 1, 1]
