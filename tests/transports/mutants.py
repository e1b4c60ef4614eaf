"""Ways with one fault each, small enough to slip through a review, and which test finds each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from redrive.model.delivery import Leased
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.transports.ssrf import EVERYWHERE
from tests.transports.lines import SECRET, Line, LineTransport, replaced
from tests.waiting import spend

__all__ = ["CAUGHT_BY"]


class LosesWhatFails(LineTransport):
    """The library has logged it, so it must be all right."""

    async def attempt(self, one: Leased) -> Outcome:
        await super().attempt(one)
        return Succeeded()


class SendsTwice(LineTransport):
    async def attempt(self, one: Leased) -> Outcome:
        await super().attempt(one)
        return await super().attempt(one)


class AnswersBackwards(LineTransport):
    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        return list(reversed(await super().send(list(reversed(deliveries)))))


class MixesUpAnswers(LineTransport):
    last = b""

    async def ask(self, line: Line, one: Leased) -> bytes:
        self.last = await super().ask(line, one)
        await spend(0.01)
        return self.last


class CondemnsTheBatch(LineTransport):
    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        outcomes = await super().send(deliveries)
        bad = [one for one in outcomes if isinstance(one, Faulted)]
        return [bad[0]] * len(outcomes) if bad else outcomes


class StaysClosed(LineTransport):
    is_closed = False

    async def connect(self) -> Line:
        if self.is_closed:
            raise ConnectionResetError
        return await super().connect()

    async def close(self) -> None:
        self.is_closed = True
        await super().close()


class ShowsItsSecret(LineTransport):
    def __repr__(self) -> str:
        return f"LineTransport({self.server.shown!r}, {SECRET!r})"


class SwallowsTheEnd(LineTransport):
    """Nobody can end it."""

    async def attempt(self, one: Leased) -> Outcome:
        try:
            return await super().attempt(one)
        except asyncio.CancelledError as error:
            return self.fault(ConnectionAbortedError(str(error)))


class KeepsTheConnectionOfWhatWasEnded(LineTransport):
    def end(self, line: Line) -> None:
        self.free.append(line)


class NeverLooksForAnother(LineTransport):
    """What is broken is kept."""

    async def attempt(self, one: Leased) -> Outcome:
        if not self.free:
            return await super().attempt(one)
        line = self.free[-1]
        try:
            return self.judge(await self.ask(line, one))
        except (OSError, EOFError) as error:
            return self.fault(error)


class TakesTheEndForAnAnswer(LineTransport):
    async def ask(self, line: Line, one: Leased) -> bytes:
        try:
            return await super().ask(line, one)
        except (OSError, EOFError):
            return b"ok\n"


class TakesASlowAnswerForNone(LineTransport):
    async def ask(self, line: Line, one: Leased) -> bytes:
        async with asyncio.timeout(0.04):
            return await super().ask(line, one)


class GivesUpForGood(LineTransport):
    def fault(self, error: Exception) -> Faulted:
        return msgspec.structs.replace(super().fault(error), nature=Nature.TERMINAL)


class LeavesConnectionsOpen(LineTransport):
    async def close(self) -> None:
        return


class ConnectsEachTime(LineTransport):
    async def attempt(self, one: Leased) -> Outcome:
        outcome = await super().attempt(one)
        await self.close()
        return outcome


class GoesAnywhere(LineTransport):
    async def connect(self) -> Line:
        return await replaced(self.server, allowed=EVERYWHERE).open(tls=False)


class EndsEverybody(LineTransport):
    """One that is cancelled takes the connections of the others with it."""

    def __init__(self, server: object) -> None:
        super().__init__(server)  # type: ignore[arg-type]
        self.lines: list[Line] = []

    async def connect(self) -> Line:
        self.lines.append(await super().connect())
        return self.lines[-1]

    async def attempt(self, one: Leased) -> Outcome:
        try:
            return await super().attempt(one)
        except asyncio.CancelledError:
            for _, writer in self.lines:
                writer.transport.abort()
            raise


class IsHeldUpForEver(LineTransport):
    """Connections that were begun are counted, and those that were ended are not given back."""

    places = 3

    async def attempt(self, one: Leased) -> Outcome:
        if self.places == 0:
            return self.fault(ConnectionRefusedError())
        self.places -= 1
        outcome = await super().attempt(one)
        self.places += 1
        return outcome


CAUGHT_BY: dict[type[LineTransport], str] = {
    LosesWhatFails: "test_who_is_not_there_is_tried_again",
    SendsTwice: "test_each_event_arrives_once_and_in_order",
    AnswersBackwards: "test_a_batch_has_an_outcome_for_each_and_arrives_in_order",
    MixesUpAnswers: "test_many_at_once_do_not_mix_up_their_outcomes",
    CondemnsTheBatch: "test_one_bad_event_does_not_condemn_those_beside_it",
    StaysClosed: "test_it_may_be_closed_at_any_time_and_used_again",
    ShowsItsSecret: "test_the_declaration_shows_no_secret",
    SwallowsTheEnd: "test_what_is_not_answered_in_time_can_be_ended_and_sent_again",
    IsHeldUpForEver: "test_a_server_that_never_greets_holds_nobody_up_for_longer",
    EndsEverybody: "test_one_that_is_cancelled_leaves_the_others_alone",
    GivesUpForGood: "test_who_is_not_there_is_tried_again",
    KeepsTheConnectionOfWhatWasEnded: "test_a_connection_that_fell_silent_is_not_used_again",
    NeverLooksForAnother: "test_a_server_that_restarts_is_found_again",
    TakesASlowAnswerForNone: "test_a_slow_answer_is_an_answer",
    TakesTheEndForAnAnswer: (
        "test_an_answer_that_is_lost_is_no_success_and_a_repeat_has_the_same_id"
    ),
    LeavesConnectionsOpen: "test_a_close_closes_its_connections",
    ConnectsEachTime: "test_connections_are_used_again",
    GoesAnywhere: "test_an_address_that_is_not_allowed_is_never_connected_to",
}
