"""What people look at has its secrets blanked; what is taken back stays whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redrive import ConfigurationError, Event, Redrive, Terminal, UsageError
from redrive.model.audit import AuditEntry
from redrive.observer import DeadLettered, Operated
from redrive.testing import Kit
from tests.app.recorder import Recorder

PASSWORD = "corr/ect horse"  # noqa: S105 - planted, to be found nowhere
BEARER = "Bearer 0123-abcd"
IBAN = "DE0212030000"
PAYLOAD = {"order": 42, "user": {"password": PASSWORD}, "iban": IBAN}


def shop(**options: Any) -> tuple[Redrive, Recorder]:  # noqa: ANN401 - any setting
    app, recorder = Redrive("memory://", redact=["iban"], **options), Recorder()
    app.observe(recorder)

    @app.handler("order.*", name="billing")
    async def bill(event: Event[dict[str, Any]]) -> None:
        raise Terminal(f"no such user: {event.payload} {event.headers}, Corr%2Fect+horse")

    return app, recorder


async def fail(app: Redrive, kit: Kit) -> None:
    await app.publish("order.paid", PAYLOAD, headers={"authorization": BEARER})
    await kit.drain()


def hidden(*told: object) -> bool:
    return not any(one in repr(told) for one in (PASSWORD, "Corr%2F", BEARER, IBAN))


async def test_whoever_looks_sees_no_secret(store: str) -> None:
    app, recorder = shop()
    async with Kit(app, store=store) as kit:
        await fail(app, kit)
        story = await kit.operations.show(1)
        page = await kit.operations.dead_letters()
        groups = await kit.operations.groups()

    [letter] = recorder.of(DeadLettered)
    assert hidden(story, page, groups, letter)
    assert story.payload == {"order": 42, "user": {"password": "[redacted]"}, "iban": "[redacted]"}
    assert story.event.headers == {"authorization": "[redacted]"}
    assert letter.fault.message.startswith("no such user: ")


async def test_an_error_is_stored_without_the_secrets_of_its_event(store: str) -> None:
    """It is what SQL and every log show."""
    app, _ = shop()
    async with Kit(app, store=store) as kit:
        await fail(app, kit)
        [letter] = [one async for one in kit.operations.export()]

    assert hidden(letter.delivery)
    assert letter.delivery.fault is not None
    assert "'order': 42" in letter.delivery.fault.message


async def test_who_reveals_sees_everything_and_is_on_record(store: str) -> None:
    app, recorder = shop()
    async with Kit(app, store=store) as kit:
        await fail(app, kit)
        story = await kit.operations.reveal(1, by="ann", why="the customer asks")
        [entry] = await kit.operations.audit()

    assert story.payload == PAYLOAD
    assert story.event.headers == {"authorization": BEARER}
    assert (entry.action, entry.by, entry.why) == ("reveal", "ann", "the customer asks")
    assert (entry.count, entry.deliveries) == (1, (1,))
    assert [one.action for one in recorder.of(Operated)] == ["reveal"]


async def test_who_is_nobody_reveals_nothing(store: str) -> None:
    app, _ = shop()
    async with Kit(app, store=store) as kit:
        await fail(app, kit)
        with pytest.raises(ConfigurationError, match="say who acts"):
            await kit.operations.reveal(1, by=" ")

        assert list(await kit.operations.audit()) == []


async def test_what_is_taken_out_and_back_stays_whole(store: str) -> None:
    app, _ = shop()
    async with Kit(app, store=store) as kit:
        await fail(app, kit)
        letters = [one async for one in kit.operations.export()]
        await kit.operations.delete([1], by="ann", why="moving")
        await kit.operations.restore(letters, by="ann")
        [back] = [one async for one in kit.operations.export()]

    assert msgspec.json.decode(back.event.payload) == PAYLOAD
    assert back.event.headers == {"authorization": BEARER}


async def test_an_edit_of_what_is_shown_keeps_what_is_hidden(store: str) -> None:
    app, _ = shop()
    async with Kit(app, store=store) as kit:
        await fail(app, kit)
        shown: Any = (await kit.operations.show(1)).payload
        changed = {**shown, "order": 43, "iban": "DE99"}
        preview = await kit.operations.preview_edit(1, changed)
        after = await kit.operations.edit(1, changed, by="ann", why="wrong number", replay=False)
        whole = await kit.operations.reveal(1, by="ann")
        page = await kit.operations.dead_letters()

    assert whole.payload == {**PAYLOAD, "order": 43, "iban": "DE99"}
    assert {one.path: (one.before, one.after) for one in preview} == {
        "order": ("42", "43"),
        "iban": ("[redacted]", "[redacted]"),
    }
    assert after.delivery.edits[0].changes == preview
    assert hidden(preview, after, page)
    assert "DE99" not in repr((preview, after, page))


async def test_an_edit_never_sends_what_stands_for_a_secret(store: str) -> None:
    app, _ = shop()
    async with Kit(app, store=store) as kit:
        await fail(app, kit)
        with pytest.raises(UsageError, match=r"The payload has \[redacted\] at secret"):
            await kit.operations.edit(1, {"secret": "[redacted]"}, by="ann", why="a try")


async def test_reasons_are_shown_without_secrets(store: str) -> None:
    app, _ = shop()
    async with Kit(app, store=store) as kit:
        await fail(app, kit)
        await kit.operations.resolve([1], by="ann", why=f"sent again with password={IBAN}")
        entry: AuditEntry
        [entry] = await kit.operations.audit()

    assert entry.why == "sent again with password=[redacted]"


def test_names_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_REDACT", "iban, card_*")

    assert Redrive("memory://").settings.redact == ("iban", "card_*")
    assert Redrive("memory://", redact=["x"]).settings.redact == ("x",)
    with pytest.raises(ConfigurationError, match="redact is '\\*'"):
        Redrive("memory://", redact="*")
