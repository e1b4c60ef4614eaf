"""The turns of tenants during one claim.

It asks for as many tenants as it can serve, and for more of their work only if there is room left.
`round_robin` deals out the turns; this module decides how much to read for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.claiming.ready import KINDS, NOBODY, Candidate, Ready, Sort, TenantState
from redrive.claiming.round_robin import PLENTY, Line, Share, begin, next_token, serve, spent
from redrive.claiming.turnstile import Turnstile
from redrive.model.delivery import Kind
from redrive.model.fairness import Fairness
from redrive.model.gate import Rotation
from redrive.model.instant import micros
from redrive.policies.breaker import last_probed

__all__ = ["FairSelection", "all_sorts", "open_sorts", "place_among"]

_MOST_PASSED_OVER = 1_000
_MOST_READ = 500
_SOON = timedelta(milliseconds=100)


def all_sorts(generations: Sequence[str], *, kinds: int = len(Kind)) -> list[Sort]:
    """Return all sorts of work that there may be of some generations."""
    return [(one, kind) for kind in range(kinds) for one in generations]


def open_sorts(sorts: Iterable[Sort], turnstile: Turnstile) -> list[Sort]:
    """Return those of the sorts that there are tokens for."""
    is_open = [not turnstile.is_shut_for(kind) for kind in KINDS]
    return [sort for sort in sorts if is_open[sort[1]]]


def place_among(probed: Sequence[int], delivery: int) -> int:
    """Return how long ago a delivery was a probe: the longer, the lower; never is the lowest."""
    return probed.index(delivery) if delivery in probed else -1


class _Backlog:
    """What is known of the work of one tenant: the first `limit` of each sort."""

    def __init__(self, state: TenantState, *, turn: int, tokens: int) -> None:
        self.state = state
        self.turn = turn
        self.tokens = tokens
        self.limit = 0
        self.found: dict[Sort, list[Candidate]] = {}
        self.cut: dict[Sort, Candidate] = {}

    def aim(self, limit: int) -> None:
        """Set how many to read; if it has tokens for just so many, one more shows what is left."""
        self.limit = limit + (limit == self.tokens)

    def learn(self, sort: Sort, found: list[Candidate], *, is_all: bool) -> None:
        """Take note of the first of one sort; there may be more unless these are all."""
        self.found[sort] = found
        self.cut.pop(sort, None)
        if not is_all:
            self.cut[sort] = found[-1]

    def line(self, avoided: Sequence[int] = ()) -> Line[Candidate]:
        """Return the work up to where its order is certain, without those to avoid."""
        sorts = [found for found in self.found.values() if found]
        work = sorts[0] if len(sorts) == 1 else sorted(one for found in sorts for one in found)
        if self.cut and len(sorts) > 1:
            end = min(self.cut.values())
            work = [one for one in work if one <= end]
        if avoided:
            work = [one for one in work if one.id not in avoided]
        return Line(
            tenant=self.state.tenant,
            turn=self.turn,
            work=work,
            tokens=self.tokens,
            is_cut=bool(self.cut) or (self.tokens <= 0 and not self.state.is_paused),
        )


class FairSelection:
    """One destination's turns during one claim.

    `is_flooded` says that more has come due than was made ready, so somebody's may be missing.
    """

    def __init__(
        self,
        ready: Ready,
        fairness: Fairness,
        *,
        sorts: Sequence[Sort],
        turnstile: Turnstile,
        is_flooded: bool,
        now: datetime,
    ) -> None:
        self._ready = ready
        self._fairness = fairness
        self._is_flooded = is_flooded
        self._now = now
        self.turnstile = turnstile
        self._room = self.turnstile.left
        self._most = [self.turnstile.most(kind) for kind in KINDS]
        self._holds_apart = turnstile.holds_apart
        self._filled = list(sorts)
        self._sorts = open_sorts(self._filled, turnstile)
        self._rotation = self.turnstile.gate.rotation
        self._roster = _Roster(self._rotation)
        self._queues: dict[str, _Backlog] = {}
        self._avoided = last_probed(turnstile.gate.breaker)
        self._most_avoided = len(self._avoided)
        self._read = 0
        self.again_at: datetime | None = None

    async def serve(self) -> Share[Candidate]:
        """Deal out what the gate lets through, and leave the turnstile as that has left it."""
        goal = min(self._room, sum(self._most))
        page = -(-goal // self._fairness.turn) + 1
        if goal <= 0 or not await self._begin(page):
            return Share(chosen=(), served=(), rotation=self._rotation)
        while True:
            await self._read_unread(goal)
            serving = self._deal()
            missing = goal - len(serving.chosen)
            if serving.longing and self._read < _MOST_READ + 4 * goal:
                await self._extend(serving.longing, missing)
            elif missing > 0 and not self._roster.is_complete and self._sorts:
                if len(self._queues) - len(serving.served) >= _MOST_PASSED_OVER:
                    return self._break_off(serving)
                page *= 2
                await self._look_on(page)
            elif self._avoided and not serving.chosen:
                self._avoided = self._avoided[1:]
            else:
                self._note_openings(serving)
                return serving

    async def _begin(self, page: int) -> bool:
        """Get to know the first tenants, and tell whether there is any work.

        A cheap check tells whether any tenant other than the last one served has work.
        """
        tenant = self._rotation.tenant or ""
        if self._is_flooded:
            start, _ = begin(self._rotation)
            await self._ready.promote(start=start, most=page, turn=self._fairness.turn)
        self._filled, has_others = await self._ready.survey(self._sorts, tenant=tenant)
        self._sorts = self._filled
        if has_others:
            await self._look_on(page)
        else:
            self._roster.is_complete = True
            self._admit(await self._state_of(tenant))
        return bool(self._filled)

    async def _state_of(self, tenant: str) -> TenantState:
        if not tenant and self._fairness.rate_of("") is None:
            return NOBODY
        return await self._ready.state_of(tenant)

    def _admit(self, state: TenantState) -> None:
        tokens = state.affordable(self._fairness, now=self._now)
        turn = self._fairness.turn_of(state.tenant)
        self._queues[state.tenant] = _Backlog(state, turn=turn, tokens=tokens)

    async def _look_on(self, page: int) -> None:
        """Get to know the tenants whose turn comes next."""
        for state in await self._roster.more(page, self._list):
            self._admit(state)

    async def _list(self, start: str, most: int) -> list[TenantState]:
        return await self._ready.tenants(self._sorts, start=start, most=most)

    async def _read_unread(self, goal: int) -> None:
        """Read for each new tenant as much as it could get if all the others had enough."""
        able = [one for one in self._queues.values() if one.tokens > 0]
        rounds = 1
        if self._roster.is_complete:
            rounds = max(1, -(-goal // max(1, sum(one.turn for one in able))))
        unread = [one for one in able if not one.limit]
        for queue in unread:
            queue.aim(min(self._room, rounds * queue.turn))
        await self._read_work(unread)

    async def _extend(self, tenants: Sequence[str], missing: int) -> None:
        """Read more of those who could have had more."""
        longing = [self._queues[tenant] for tenant in tenants]
        rounds = -(-missing // sum(one.turn for one in longing))
        for queue in longing:
            queue.aim(max(2 * queue.limit, queue.limit + rounds * queue.turn))
        await self._read_work(longing)

    async def _read_work(self, queues: Iterable[_Backlog]) -> None:
        """Read the first deliveries of each of the tenants, up to its limit."""
        wanted = [(queue, sort) for queue in queues for sort in queue.cut or self._sorts]
        lines = [(queue.state.tenant, sort, queue.limit) for queue, sort in wanted]
        found = await self._ready.lines(lines)
        for (queue, sort), rows in zip(wanted, found, strict=True):
            self._read += len(rows)
            is_all = len(rows) < queue.limit or queue.limit >= self._most_of(queue, sort)
            queue.learn(sort, rows, is_all=is_all)

    def _most_of(self, queue: _Backlog, sort: Sort) -> int:
        """Return how many may matter: one more than may pass, to see that some are turned away.

        Where what was held waits for tokens of its own, fresh ones may be any way behind it.
        """
        if KINDS[sort[1]] is Kind.FIRST and self._holds_apart:
            return PLENTY
        most = min(self._room, self._most[sort[1]] + 1, queue.tokens + 1)
        return most + self._most_avoided

    def _deal(self) -> Share[Candidate]:
        lines = [queue.line(self._avoided) for queue in self._queues.values()]
        self.turnstile = turnstile = self.turnstile.rewound()
        reopened_at = turnstile.gate.reopened_at
        held_until = 0 if reopened_at is None else micros(reopened_at)
        if self._is_plain(lines, held_until):
            serving = serve(
                lines, self._rotation, room=self._room, is_everybody=self._roster.is_complete
            )
            turnstile.admit_first(len(serving.chosen))
        else:
            serving = serve(
                lines,
                self._rotation,
                room=self._room,
                admit=lambda one: turnstile.admit(KINDS[one.kind], was_held=one.due <= held_until),
                is_exhausted=lambda one: turnstile.is_exhausted(
                    KINDS[one.kind], was_held=one.due <= held_until
                ),
                is_everybody=self._roster.is_complete,
            )
        self._sorts = open_sorts(self._filled, turnstile)
        return serving

    def _is_plain(self, lines: Sequence[Line[Candidate]], held_until: int) -> bool:
        """Tell whether all are fresh first attempts, for which there are tokens enough."""
        return self.turnstile.fresh >= self._room and all(
            KINDS[one.kind] is Kind.FIRST and one.due > held_until
            for line in lines
            for one in line.work
        )

    def _break_off(self, serving: Share[Candidate]) -> Share[Candidate]:
        """Leave the rest to the next claim: too many tenants in a row may not have anything now."""
        self.again_at = self._now + _SOON
        last = next(reversed(self._queues))
        return Share(
            chosen=serving.chosen,
            served=serving.served,
            rotation=msgspec.structs.replace(serving.rotation, behind=last),
        )

    def _note_openings(self, serving: Share[Candidate]) -> None:
        """Note when the first of those without tokens has one again."""
        served = {one.tenant: one.count for one in serving.served}
        for tenant in serving.spent:
            rate, state = self._fairness.rate_of(tenant), self._queues[tenant].state
            if rate is not None:
                bucket = spent(state.bucket, rate, served.get(tenant, 0), now=self._now)
                opens_at = next_token(bucket, rate, now=self._now)
                self.again_at = min(self.again_at or opens_at, opens_at)

    def states(self) -> dict[str, TenantState]:
        """Return what is kept of the tenants that were looked at."""
        return {name: queue.state for name, queue in self._queues.items()}


class _Roster:
    """The tenants with due work, in the order of their turns, asked for a few at a time."""

    def __init__(self, rotation: Rotation) -> None:
        self._begin, self._is_included = begin(rotation)
        self._start, self._skips_start = self._begin, not self._is_included
        self._has_turned = False
        self._is_first_the_front = self._is_included and not self._begin
        self.is_complete = False

    async def more(
        self, count: int, ask: Callable[[str, int], Awaitable[list[TenantState]]]
    ) -> list[TenantState]:
        """Return the next tenants; with fewer than asked for these were the last."""
        found: list[TenantState] = []
        while len(found) < count and not self.is_complete:
            asked = count - len(found) + self._skips_start
            page = await ask(self._start, asked)
            is_end = len(page) < asked
            if self._skips_start and page and page[0].tenant == self._start:
                del page[0]
            if page:
                self._start, self._skips_start = page[-1].tenant, True
            found += [one for one in page if not self._has_turned or self._is_left(one.tenant)]
            if self._has_turned:
                self.is_complete = is_end or not self._is_left(self._start)
            elif is_end and self._is_first_the_front:
                self.is_complete = True
            elif is_end:
                self._start, self._skips_start, self._has_turned = "", False, True
        return found

    def _is_left(self, tenant: str) -> bool:
        """Tell whether a tenant is one of those before the first."""
        return tenant < self._begin or (tenant == self._begin and not self._is_included)
