"""Python functions as destinations: sync or async, typed payloads, one event or a batch."""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, MutableSequence, Sequence
from typing import Any

import msgspec

from redrive.context import handling
from redrive.errors import ConfigurationError, PayloadError
from redrive.executor import Executor, StillRunning, disregard
from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.model.outcome import CALL, Cancel, Exchange, Fault, Faulted, Outcome, Snooze, Succeeded
from redrive.policies.capture import capture
from redrive.policies.classify import classify
from redrive.policies.payload import encode_payload, payload_decoder
from redrive.policies.terms import Terms
from redrive.policies.upcasting import NO_UPCASTS, Upcasts

__all__ = ["FunctionTransport", "Handler", "is_async", "name_of"]

Handler = Callable[..., Any]

_SUCCEEDED = Succeeded()
_LONGEST_RESULT = 2**16
_LISTS: tuple[object, ...] = (list, Sequence, MutableSequence, Collection, Iterable)
_NO_LISTS: tuple[object, ...] = (tuple, set, frozenset, dict)


class FunctionTransport:
    """Calls a handler.

    The handler's parameter says what it gets: `event: Event[Order]` decodes the payload into an
    `Order` (a dataclass, msgspec Struct or pydantic model), and a payload that does not fit is
    terminal. With `batch` it gets a list of events and may answer with a list, one item each:
    `None` for done, `Snooze`, `Cancel` or an exception.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        terms: Terms,
        executor: Executor,
        batch: int | None = None,
        takes_connection: bool = False,
        keeps_result: bool = False,
        upcasts: Upcasts = NO_UPCASTS,
    ) -> None:
        self._handler = handler
        self._keeps_result = keeps_result
        self._upcasts = upcasts
        self._terms = terms
        self._executor = executor
        self._is_async = is_async(handler)
        self.is_threaded = not self._is_async
        self._place = _place_of(handler)
        self.takes_batch = batch is not None
        """Whether the handler gets a list of events."""
        self.batch = batch or 1
        self._decode = _payload_decoder(
            handler, takes_batch=self.takes_batch, takes_connection=takes_connection
        )

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        if self.takes_batch:
            return await self._send_batch(deliveries)
        return (await self.attempt(deliveries[0]),)

    async def attempt(self, leased: Leased, *more: object) -> Outcome:
        """Call the handler once, with the event and what else it takes."""
        answer: object
        try:
            event = self._open(leased)
            with handling((leased,), (event,), self._terms, is_batch=False):
                if self._is_async:
                    answer = await self._handler(event, *more)
                else:
                    answer = await self._in_thread(event, *more)
                if answer is not None:
                    answer = await _last_of(answer)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            return self._fault(error)
        return _SUCCEEDED if answer is None else self._outcome(answer)

    async def attempt_all(self, deliveries: Sequence[Leased], *more: object) -> Outcome:
        """Call a handler that takes many once, with all of the events and what else it takes.

        It has succeeded with all of them, or with none.
        """
        try:
            events = [self._open(one) for one in deliveries]
            given = events.copy()  # a handler may empty its list
            with handling(deliveries, events, self._terms, is_batch=True):
                answer = await _last_of(await self._handler(given, *more))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            return self._fault(error)
        return self._outcome(answer)

    async def _send_batch(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        outcomes: dict[int, Outcome] = {}
        events: list[Event[Any]] = []
        places: list[int] = []
        for place, leased in enumerate(deliveries):
            try:
                events.append(self._open(leased))
                places.append(place)
            except Exception as error:  # noqa: BLE001 - a payload that does not fit fails alone
                outcomes[place] = self._fault(error)
        answers: Sequence[object]
        try:
            answer = None
            if events:
                given = events.copy()  # a handler may empty its list
                theirs = [deliveries[place] for place in places]
                with handling(theirs, events, self._terms, is_batch=True):
                    calling = self._handler(given) if self._is_async else self._in_thread(given)
                    answer = await _last_of(await calling)
            answers = self._split(answer, len(events))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            answers = [error] * len(events)
        outcomes.update(
            (place, self._outcome(one)) for place, one in zip(places, answers, strict=True)
        )
        return [outcomes[place] for place in range(len(deliveries))]

    def _split(self, answer: object, count: int) -> Sequence[object]:
        match answer:
            case None | Snooze() | Cancel() | BaseException():
                return [answer] * count
            case list() | tuple() if len(answer) == count:
                return answer
            case list() | tuple():
                said = f"{len(answer)} items for {count} events"
            case type():
                said = f"with the class {answer.__name__}"
            case _:
                said = f"with a {type(answer).__name__}"
        raise ConfigurationError(
            f"The batch handler answered {said}; answer None when all are done, or a list with "
            "one item for each event."
        )

    def _open(self, leased: Leased) -> Event[Any]:
        try:
            event = self._upcasts.applied(leased.event)
            return msgspec.structs.replace(event, payload=self._decode(event.payload))
        except Exception as error:
            raise _Misfit(error) from error

    async def _in_thread(self, *arguments: object) -> object:
        """Run the handler in a thread.

        A thread cannot be ended: the first cancellation (the time-out, or the worker's end) goes on
        waiting for it, so that its place in the worker and its lease stay taken.
        """
        future = self._executor.submit(lambda: self._handler(*arguments))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            disregard(future)
            try:
                if not future.done():
                    await asyncio.wait([future])
            except asyncio.CancelledError:
                raise StillRunning from None
            raise

    def _outcome(self, answer: object) -> Outcome:
        match answer:
            case Snooze() | Cancel():
                return answer
            case BaseException():
                return self._fault(answer)
            case type() if issubclass(answer, Snooze | Cancel | BaseException):
                return self._fault(
                    TypeError(f"the handler returned the class {answer.__name__}; call it")
                )
            case None:
                return _SUCCEEDED
            case _:
                return Succeeded(_exchange(answer)) if self._keeps_result else _SUCCEEDED

    def _fault(self, error: BaseException) -> Faulted:
        place = ""
        if isinstance(error, _Misfit):
            error, place = error.cause, self._place
        verdict = classify(error, terminal=self._terms.terminal, transient=self._terms.transient)
        fault: Fault = capture(error, rule=verdict.rule, place=place)
        return Faulted(fault=fault, nature=verdict.nature, retry_after=verdict.retry_after)


class _Misfit(Exception):  # noqa: N818 - it never leaves this module
    """A payload is not what the handler takes."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


def _exchange(answer: object) -> Exchange:
    """Write down what a handler returned; it has succeeded, whatever that is."""
    try:
        body, why = encode_payload(answer).decode(), ""
    except PayloadError as error:
        body, why = "", str(error)
    if len(body) > _LONGEST_RESULT:
        body, why = "", f"It is longer than {_LONGEST_RESULT:,} characters."
    return Exchange(method=CALL, url="", headers={}, size=0, reason=why, body=body)


async def _last_of(answer: object) -> object:
    """Await what a plain function around an async one, such as a decorator, hands out."""
    return await answer if inspect.isawaitable(answer) else answer


def _payload_decoder(
    handler: Handler, *, takes_batch: bool, takes_connection: bool
) -> Callable[[msgspec.Raw], Any]:
    _check_parameters(handler, takes_batch=takes_batch, takes_connection=takes_connection)
    wanted = _payload_type(handler, takes_batch=takes_batch)
    return payload_decoder(wanted, who=f"The handler {name_of(handler)}")


def _check_parameters(handler: Handler, *, takes_batch: bool, takes_connection: bool) -> None:
    try:
        inspect.signature(handler).bind(*([None, None] if takes_connection else [None]))
    except TypeError as error:
        needed = f"exactly one argument, the event{'s' if takes_batch else ''}"
        if takes_connection:
            needed = "two arguments, the event and the connection, to be transactional"
        raise ConfigurationError(
            f"The handler {name_of(handler)} must take {needed} ({error})."
        ) from error
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ConfigurationError(
            f"The handler {name_of(handler)} has a yield, so calling it would run nothing of it; "
            "return, or publish what it yields."
        )


def _payload_type(handler: Handler, *, takes_batch: bool) -> Any:  # noqa: ANN401 - a type form
    """Return what the handler's first parameter asks for; `Any` when it says nothing."""
    parameters = inspect.signature(handler).parameters
    hint = _resolved(next(iter(parameters.values())).annotation, handler)
    _check_shape(handler, typing.get_origin(hint) or hint, takes_batch=takes_batch)
    if takes_batch:
        arguments = typing.get_args(hint)
        hint = arguments[0] if arguments else Any
    if typing.get_origin(hint) is Event:
        (wanted,) = typing.get_args(hint)
        return Any if wanted is object or isinstance(wanted, typing.TypeVar) else wanted
    return Any


def _check_shape(handler: Handler, shape: object, *, takes_batch: bool) -> None:
    """Refuse a handler for one event that gets a list, and the other way round."""
    if takes_batch and shape in {Event, *_NO_LISTS}:
        raise ConfigurationError(
            f"The handler {name_of(handler)} gets a list of events, because it is declared with "
            "batch; let it take events: list[Event[...]], or leave batch out."
        )
    if not takes_batch and shape in {*_LISTS, *_NO_LISTS}:
        raise ConfigurationError(
            f"The handler {name_of(handler)} asks for several events, and without batch it gets "
            "one at a time; declare it with batch=100, say, or let it take event: Event[...]."
        )


def is_async(handler: Handler) -> bool:
    """Tell whether calling it gives something to await; objects with an async call count too."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        type(handler).__call__
    )


def _resolved(annotation: object, handler: Handler) -> Any:  # noqa: ANN401 - a type form
    """Return an annotation as a type: with deferred evaluation it is only text."""
    if not isinstance(annotation, str):
        return annotation
    function = _bare(handler)
    known = getattr(function, "__globals__", None) or type(function).__call__.__globals__
    bare = types.SimpleNamespace(__annotations__={"event": annotation})
    try:
        return typing.get_type_hints(bare, known)["event"]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        if "[" not in annotation:
            return Any
        raise ConfigurationError(
            f"The handler {name_of(handler)} asks for {annotation}, and {error} when the app runs, "
            "so payloads could not be checked; define or import it at the top of the module, "
            "outside `if TYPE_CHECKING`."
        ) from error


def _bare(handler: Handler) -> Handler:
    """Return the function under its decorators."""
    function: Handler = inspect.unwrap(handler)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    return function


def _place_of(handler: Handler) -> str:
    """Return where a handler is, as a stack writes it; nothing for one that is not in Python."""
    function = _bare(handler)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:
        return ""
    return f'  File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}'


def name_of(handler: Handler) -> str:
    """Return what a handler is called in messages."""
    return getattr(handler, "__qualname__", repr(handler))
