"""A failure is written down in bounded text, whatever the exception does."""

import errno
import json
import socket
import sqlite3
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.model.outcome import Fault
from redrive.policies.capture import bounded_message, capture, timed_out


class Unreadable(Exception):  # noqa: N818 - named for what it does
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Slippery(Exception):  # noqa: N818 - named for what it does
    @property
    def code(self) -> str:
        raise RuntimeError("no code")


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except type(error) as caught:
        return caught


def coded(**attributes: object) -> Exception:
    error = Exception("coded")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def descend(depth: int) -> None:
    if depth == 0:
        raise ValueError("at the bottom")
    descend(depth - 1)


def failure_below(module: str, body: str, **names: object) -> Exception:
    """Return the division by zero met by code of a module, with a traceback that begins there."""
    code = compile(body, f"{module}.py", "exec")
    with pytest.raises(ZeroDivisionError) as caught:
        exec(code, {"__name__": module, **names})  # noqa: S102 - our own text
    trace = caught.value.__traceback__
    assert trace is not None
    return caught.value.with_traceback(trace.tb_next)


def test_a_fault_says_what_was_raised_and_why_it_was_judged_so() -> None:
    fault = capture(raised(ValueError("odd amount")), rule="default")

    assert fault.error_class == "ValueError"
    assert fault.message == "odd amount"
    assert fault.rule == "default"
    assert fault.code == ""


def test_a_class_is_named_with_its_module_unless_it_is_a_builtin() -> None:
    assert capture(KeyError(), rule="").error_class == "KeyError"
    assert capture(sqlite3.Error(), rule="").error_class == "sqlite3.Error"
    assert capture(json.JSONDecodeError("", "", 0), rule="").error_class == (
        "json.decoder.JSONDecodeError"
    )


def test_an_exception_without_a_message_still_says_something() -> None:
    for error in (TimeoutError(), TimeoutError(""), TimeoutError("  \t\n")):
        assert capture(error, rule="").message == "TimeoutError without a message"


def test_an_exception_that_cannot_be_read_is_captured_all_the_same() -> None:
    fault = capture(raised(Unreadable()), rule="default")

    assert fault.message == "The message cannot be read: its __str__ raised RuntimeError."
    assert "in raised" in fault.stack


def test_the_stack_ends_where_it_was_raised() -> None:
    fault = capture(raised(ValueError("odd amount")), rule="default")

    assert "in raised" in fault.stack
    assert fault.stack.endswith("ValueError: odd amount")


def test_the_stack_tells_the_cause() -> None:
    error = raised(ValueError("bad order"), cause=raised(KeyError("iban")))

    stack = capture(error, rule="default").stack

    assert "KeyError: 'iban'" in stack
    assert "ValueError: bad order" in stack


def test_the_stack_shows_no_local_variable() -> None:
    def charge() -> None:
        card = "4111" + "1111"
        raise ValueError(f"declined a card of {len(card)} digits")

    with pytest.raises(ValueError, match="declined") as caught:
        charge()

    assert "41111111" not in capture(caught.value, rule="default").stack


def test_a_long_message_is_cut_and_leaves_the_place_in_the_stack() -> None:
    fault = capture(raised(ValueError("x" * 100_000)), rule="default")

    assert len(fault.message) == 2_000
    assert fault.message.endswith("…")
    assert len(fault.stack) <= 8_000
    assert "in raised" in fault.stack


def test_a_deep_stack_is_cut_at_its_beginning() -> None:
    with pytest.raises(ValueError, match="at the bottom") as caught:
        descend(500)

    stack = capture(caught.value, rule="default").stack

    assert len(stack) <= 8_000
    assert stack.endswith("ValueError: at the bottom")


def test_a_long_chain_keeps_its_end() -> None:
    error: Exception = ValueError("first")
    for number in range(100):
        error = raised(KeyError(number), cause=error)

    stack = capture(error, rule="default").stack

    assert len(stack) == 8_000
    assert stack.startswith("…")
    assert stack.endswith("KeyError: 99")


@given(st.text(st.characters(codec=None)))
def test_every_message_can_be_stored(text: str) -> None:
    """Half a surrogate pair or a NUL would make the store refuse the settlement."""
    fault = capture(raised(ValueError(text)), rule="default")

    assert "\x00" not in fault.message + fault.stack
    assert msgspec.json.decode(msgspec.json.encode(fault), type=Fault) == fault


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "ECONNREFUSED"),
        (OSError(99_999, "unheard of"), "99999"),
        (OSError("without a number"), ""),
        (socket.gaierror(socket.EAI_NONAME, "unknown host"), str(int(socket.EAI_NONAME))),
        (coded(sqlstate="23505"), "23505"),
        (coded(code=550), "550"),
        (coded(code="AccessDenied"), "AccessDenied"),
        (coded(status=404), "404"),
        (coded(code=SimpleNamespace(), status=503), "503"),
        (coded(code=None), ""),
        (coded(code=True), ""),
        (coded(code=10**5000), ""),
        (coded(code="x" * 1000), "x" * 100),
        (Slippery(), ""),
    ],
)
def test_a_code_is_taken_from_where_drivers_keep_it(error: Exception, code: str) -> None:
    assert capture(error, rule="default").code == code


def test_the_engine_leaves_its_own_frames_out() -> None:
    def handler() -> float:
        return 1 / 0

    error = failure_below("redrive.transports.function", "handler()", handler=handler)

    stack = capture(error, rule="default").stack

    assert "redrive.transports.function.py" not in stack
    assert "in handler" in stack


def test_a_failure_of_the_engine_itself_keeps_its_frames() -> None:
    error = failure_below("redrive.pipeline.deliver", "1 / 0")

    assert "redrive.pipeline.deliver.py" in capture(error, rule="default").stack


def test_a_time_out_says_how_long_it_took() -> None:
    fault = timed_out(timedelta(seconds=30))

    assert fault.error_class == "TimeoutError"
    assert fault.rule == "timeout"
    assert "30s" in fault.message


def test_a_message_of_a_handler_can_be_stored() -> None:
    assert bounded_message("a\x00b\ud800c") == "a\N{REPLACEMENT CHARACTER}b?c"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=3_000))
def test_a_message_is_cut_only_when_it_is_too_long(text: str) -> None:
    cut = bounded_message(text)

    assert len(cut) <= 2_000
    assert cut == text or (len(text) > 2_000 and text.startswith(cut[:-1]))
