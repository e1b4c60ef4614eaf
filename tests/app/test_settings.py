"""Settings: from code, the environment and redrive.toml, in that order, and wrong ones refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import ConfigurationError, Redrive, Retry
from redrive.app.config import Settings, load_settings
from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome, Succeeded

EVERYTHING: dict[str, tuple[str, object, object]] = {
    "store": ("sqlite:///shop.db", "sqlite:///shop.db", "sqlite:///shop.db"),
    "payload_limit": ("2MiB", "2MiB", 2**21),
    "concurrency": ("7", 7, 7),
    "threads": ("3", 3, 3),
    "largest_share": ("0.5", 0.5, 0.5),
    "lease": ("40s", "40s", timedelta(seconds=40)),
    "grace": ("1m", "1m", timedelta(minutes=1)),
    "poll": ("250ms", "250ms", timedelta(milliseconds=250)),
    "environment": ("staging", "staging", "staging"),
    "generation": ("blue", "blue", "blue"),
    "generations": ("blue, green", ["blue", "green"], ("blue", "green")),
    "history": ("5", 5, 5),
    "keep_delivered": ("1h", "1h", timedelta(hours=1)),
    "keep_events": ("20d", "20d", timedelta(days=20)),
    "keep_events_of": (
        "order.*=forever, mail.*=90d",
        ["order.*=forever", "mail.*=90d"],
        (("order.*", None), ("mail.*", timedelta(days=90))),
    ),
    "keep_idempotency": ("60d", "60d", timedelta(days=60)),
    "keep_inbox": ("70d", "70d", timedelta(days=70)),
    "keep_audit": ("80d", "80d", timedelta(days=80)),
    "export_folder": ("exports", "exports", "exports"),
    "keys_file": ("redrive-keys", "redrive-keys", "redrive-keys"),
    "journal": ("lifeboat", "lifeboat", "lifeboat"),
    "journal_sync": ("never", "never", "never"),
    "journal_size": ("6MB", 6_000_000, 6_000_000),
    "keep_journal": ("9d", "9d", timedelta(days=9)),
    "service_folders": ("/srv/a, b", ["/srv/a", "b"], ("/srv/a", "b")),
    "redact": ("iban, card_*", ["iban", "card_*"], ("iban", "card_*")),
}
"""Each key: as the environment spells it, as redrive.toml does, and what is read."""


def write_toml(folder: Path, **settings: object) -> Path:
    lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
    (folder / "redrive.toml").write_text("".join(lines), "utf-8")
    return folder


def test_every_key_is_tried_here() -> None:
    assert set(EVERYTHING) == set(Settings.__struct_fields__)


@pytest.mark.parametrize("key", EVERYTHING)
def test_the_environment_sets_every_key(key: str, tmp_path: Path) -> None:
    text, _, expected = EVERYTHING[key]

    settings = load_settings({}, environment={f"REDRIVE_{key.upper()}": text}, folder=tmp_path)

    assert getattr(settings, key) == expected


@pytest.mark.parametrize("key", EVERYTHING)
def test_the_file_sets_every_key(key: str, tmp_path: Path) -> None:
    _, written, expected = EVERYTHING[key]
    write_toml(tmp_path, **{key: written})

    settings = load_settings({}, environment={}, folder=tmp_path)

    assert getattr(settings, key) == expected


@pytest.mark.parametrize("key", EVERYTHING)
def test_code_sets_every_key(key: str, tmp_path: Path) -> None:
    _, written, expected = EVERYTHING[key]

    settings = load_settings({key: written}, environment={}, folder=tmp_path)

    assert getattr(settings, key) == expected


def test_code_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    write_toml(tmp_path, lease="10s", grace="10s", poll="10s")

    settings = load_settings(
        {"lease": "30s"},
        environment={"REDRIVE_LEASE": "20s", "REDRIVE_GRACE": "20s"},
        folder=tmp_path,
    )

    assert [settings.lease.seconds, settings.grace.seconds, settings.poll.seconds] == [30, 20, 10]


def test_an_app_reads_them_where_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_toml(tmp_path, store="sqlite:///from-file.db", lease="20s"))
    monkeypatch.setenv("REDRIVE_CONCURRENCY", "7")

    app = Redrive(grace="2s")

    assert app.settings.store == "sqlite:///from-file.db"
    assert (app.settings.lease.seconds, app.settings.grace.seconds) == (20, 2)
    assert app.settings.concurrency == 7


def test_without_any_the_defaults_hold(tmp_path: Path) -> None:
    assert load_settings({}, environment={"HOME": "/"}, folder=tmp_path) == Settings()


def test_a_generation_alone_is_also_what_is_claimed(tmp_path: Path) -> None:
    settings = load_settings({"generation": "blue"}, environment={}, folder=tmp_path)

    assert settings.generations == ("blue",)


def test_an_unknown_key_in_code_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match="no setting 'leese'; did you mean 'lease'"):
        Redrive("memory://", leese="5s")  # type: ignore[call-arg]


def test_an_unknown_key_in_the_environment_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match="REDRIVE_CONCURENCY: 'concurency'; did you mean 'concurrency'"
    ):
        load_settings({}, environment={"REDRIVE_CONCURENCY": "7"}, folder=tmp_path)


KUBERNETES = {
    "REDRIVE_SERVICE_HOST": "10.0.171.239",
    "REDRIVE_SERVICE_PORT": "80",
    "REDRIVE_SERVICE_PORT_HTTP": "80",
    "REDRIVE_PORT": "tcp://10.0.171.239:80",
    "REDRIVE_PORT_80_TCP": "tcp://10.0.171.239:80",
    "REDRIVE_PORT_80_TCP_PROTO": "tcp",
    "REDRIVE_PORT_80_TCP_PORT": "80",
    "REDRIVE_PORT_80_TCP_ADDR": "10.0.171.239",
    "REDRIVE_STORE_SERVICE_HOST": "10.0.171.240",
    "REDRIVE_STORE_PORT": "tcp://10.0.171.240:5432",
    "REDRIVE_STORE_PORT_5432_TCP": "tcp://10.0.171.240:5432",
}
"""What a container finds beside services named redrive and redrive-store."""


def test_variables_of_others_are_told_of_once_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {**KUBERNETES, "REDRIVE_COLOUR": "blue", "REDRIVE_LEASE": "20s"}

    settings = [load_settings({}, environment=environment, folder=tmp_path) for _ in range(2)]

    assert settings == [Settings(lease=timedelta(seconds=20))] * 2
    (told,) = caplog.records
    assert (told.name, told.levelname) == ("redrive", "WARNING")
    assert all(one in told.getMessage() for one in (*KUBERNETES, "REDRIVE_COLOUR"))
    assert "REDRIVE_LEASE" not in told.getMessage()


def test_our_own_variables_alone_are_nothing_to_tell_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load_settings({}, environment={"REDRIVE_LEASE": "20s"}, folder=tmp_path)

    assert caplog.records == []


def test_an_unknown_key_in_the_file_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    write_toml(tmp_path, pol="1s")

    with pytest.raises(
        ConfigurationError, match=r"setting in redrive\.toml: 'pol'; did you mean 'poll'"
    ):
        load_settings({}, environment={}, folder=tmp_path)


def test_an_unknown_key_that_resembles_none_is_refused_with_all_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'zzz'; there are store, payload_limit, concurr"):
        load_settings({"zzz": 1}, environment={}, folder=tmp_path)


def test_an_unknown_option_of_a_handler_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match="handler option 'time_out'; did you mean 'timeo"):
        Redrive("memory://").handler("order.*", time_out="5s")  # type: ignore[call-overload]


def test_an_unknown_option_of_a_destination_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match="option 'batch'; there are profile, retry"):
        Redrive("memory://").destination("billing", "order.*", transport=None, batch=3)  # type: ignore[arg-type, call-arg]


class _Mute:
    batch = 1


class _Uncounted:
    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        return [Succeeded() for _ in deliveries]


class _Boundless(_Uncounted):
    batch = 0


@pytest.mark.parametrize(
    ("transport", "sentence"),
    [
        ("https://example.com/hooks?token=hidden", r'is text; write transport=http\("https://…"\)'),
        (None, r"is a NoneType, which has no method `send`; pass http\(...\)"),
        (_Mute(), "is a _Mute, which has no method `send`"),
        (print, r".*which has no method `send`; declare a function with @app.handler\(...\)"),
        (_Uncounted, "is the class _Uncounted; call it"),
        (_Uncounted(), "has the batch None; set `batch` to how many deliveries `send` takes"),
        (_Boundless(), "has the batch 0; set `batch`"),
    ],
    ids=["text", "nothing", "mute", "function", "class", "uncounted", "boundless"],
)
def test_what_is_no_transport_is_refused_where_it_is_declared(
    transport: Any,  # noqa: ANN401 - anything but a transport
    sentence: str,
) -> None:
    with pytest.raises(
        ConfigurationError, match=f"The transport of the destination 'crm' {sentence}"
    ) as refusal:
        Redrive("memory://").destination("crm", "order.*", transport=transport)

    assert "hidden" not in str(refusal.value)


def test_a_file_that_is_no_toml_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text("lease = fast", "utf-8")

    with pytest.raises(
        ConfigurationError, match=r"redrive\.toml cannot be read as TOML: .* line 1"
    ):
        load_settings({}, environment={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lease": "soon"}, "lease is 'soon', which is not a duration; write a number with a unit"),
        ({"lease": 30}, "lease is 30, which is not a duration"),
        ({"lease": "500ms"}, "lease is .*; heartbeats need at least 1 s"),
        ({"grace": "-1s"}, "grace is '-1s'"),
        ({"poll": "0s"}, "poll is 0s, which would never rest"),
        ({"concurrency": 0}, "concurrency is 0; it is a whole number from 1"),
        ({"concurrency": "many"}, "concurrency is 'many'; it is a whole number from 1"),
        ({"concurrency": True}, "concurrency is True; it is a whole number from 1"),
        ({"concurrency": 1.5}, r"concurrency is 1\.5; it is a whole number from 1"),
        ({"history": -1}, "history is -1; it is a whole number from 1"),
        ({"keep_delivered": "soon"}, "keep_delivered is 'soon', which is not a duration"),
        ({"keep_events": "1h"}, "keep_events is 1h, less than keep_delivered .1d."),
        ({"keep_events_of": {"a.*": "1h"}}, "keep_events_of keeps a.. for 1h, less than keep_del"),
        ({"keep_events_of": ["a.*"]}, "keep_events_of is .'a..'.; name types"),
        ({"keep_events_of": 7}, "keep_events_of is 7; name types"),
        ({"keep_events_of": "a.*=soon"}, "keep_events_of of a.. is 'soon'"),
        (
            {"keep_idempotency": "7d"},
            "dedupe records expire before the dead letters and events they guard",
        ),
        ({"export_folder": 7}, "export_folder is 7; it is a path"),
        ({"keys_file": 7}, "keys_file is 7; it is a path"),
        ({"journal": " "}, "journal is ' '; it is the path of a folder"),
        ({"journal_sync": "later"}, "journal_sync is 'later'; it is one of always, interval"),
        ({"journal_size": "1 stone"}, "journal_size is '1 stone'; write a number of bytes"),
        ({"service_folders": 7}, "service_folders is 7; it is a list of folders"),
        ({"redact": "*"}, "redact is '.'; it is a list of names of headers and fields"),
        ({"payload_limit": "1 stone"}, "payload_limit is '1 stone'; write a number of bytes"),
        ({"payload_limit": 0}, "payload_limit is 0; it is a whole number from 1"),
        ({"payload_limit": True}, "payload_limit is True"),
        ({"generation": 5}, "generation is 5; it is"),
        ({"generation": ""}, "generation is ''; it is"),
        ({"generations": 5}, "generations is 5; it is"),
        ({"generations": ["blue", 5]}, r"generations is \['blue', 5\]; it is"),
        ({"store": "shop.db"}, "The store URL 'shop.db' is of no kind Redrive knows"),
        ({"store": "sqlite://shop.db"}, "names no file; write sqlite:///shop.db .three slashes"),
        ({"store": "oracle://localhost/shop"}, "is of no kind Redrive knows"),
        ({"store": "postgresql+asyncpg://shop"}, r"leave out \+asyncpg: postgresql://"),
        ({"store": "postgres+psycopg2://shop"}, r"leave out \+psycopg2: postgres://"),
        ({"store": "sqlite+aiosqlite:///shop.db"}, r"leave out \+aiosqlite: sqlite://"),
        ({"store": "mysql+asyncmy://shop"}, "'mysql.asyncmy://' is of no kind Redrive knows"),
        ({"store": 5}, "The store is of type int; write a URL"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_in_one_sentence(
    settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        load_settings(settings, environment={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"timeout": "never"}, "timeout is 'never', which is not a duration"),
        ({"timeout": "0s"}, "timeout is 0s, which ends every attempt before it began"),
        ({"retry": 5}, r"retry is 5; pass a Retry, such as Retry\(max_attempts=3\)"),
        ({"retry_overrides": [Retry()]}, "retry_overrides is .*; map patterns to Retry"),
        ({"retry_overrides": {"order.*": 5}}, r"The retry for 'order\.\*' is 5; pass a Retry"),
        ({"concurrency": 0}, "concurrency is 0; it is how many attempts may run at one"),
        ({"terminal": KeyError}, "terminal is .*; it is a tuple of exception classes"),
        ({"transient": ("KeyError",)}, "transient is .*; it is a tuple of exception classes"),
        ({"snooze_limit": -1}, "snooze_limit is -1; it is how often one delivery may be"),
        ({"snooze_age": 7}, "snooze_age is 7, which is not a duration"),
        ({"order": "strict"}, "order is 'strict'; it is one of none, park"),
        ({"batch": 0}, "batch is 0; it is how many events the handler takes at once"),
        ({"batch": True}, "batch is True; it is how many events the handler takes at once"),
        ({"name": "bill ing"}, "The destination name is 'bill ing'; use letters"),
    ],
    ids=str,
)
def test_a_wrong_option_of_a_handler_is_refused_in_one_sentence(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        _handler(Redrive("memory://"))("order.*", **options)(print)


def _handler(app: Any) -> Any:  # noqa: ANN401 - with options that no type checker lets pass
    return app.handler


def test_a_handler_without_a_pattern_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no pattern, so it would get no event"):
        Redrive("memory://").handler()(print)


def test_a_handler_without_parentheses_is_refused() -> None:
    """It would declare nothing, and its events would go nowhere."""

    async def bill(event: object) -> None: ...

    with pytest.raises(ConfigurationError, match=r"The pattern <function .* is not one of event"):
        Redrive("memory://").handler(bill)  # type: ignore[call-overload]
