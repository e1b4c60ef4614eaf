"""Limits by environment: the same code presses less where it only tries things out."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import ConfigurationError, Rate, Redrive, http
from redrive.model.limits import Limits
from redrive.testing import Kit


def shop(environment: str) -> Redrive:
    app = Redrive("memory://", environment=environment)
    app.handler(
        "order.*",
        name="crm",
        rate="100/s",
        concurrency=8,
        environments={"staging": {"rate": "5/s", "breaker": None}, "laptop": {"concurrency": 1}},
    )(print)
    app.destination(
        "erp",
        "order.*",
        transport=http("https://erp.example.com"),
        environments={"staging": {"retry_rate": "1/m", "breaker": None}},
    )
    return app


async def limits_of(app: Redrive) -> dict[str, Limits]:
    async with Kit(app) as kit:
        await app.open()
        return {one.destination: one.limits for one in await kit.operations.gates()}


async def test_each_environment_has_its_limits_and_keeps_what_it_does_not_name() -> None:
    usual = await limits_of(shop("production"))
    staging, laptop = await limits_of(shop("staging")), await limits_of(shop("laptop"))

    assert (usual["crm"].rate, usual["crm"].concurrency) == (Rate(per_second=100, burst=10), 8)
    assert (staging["crm"].rate, staging["crm"].concurrency) == (Rate(per_second=5, burst=1), 8)
    assert (laptop["crm"].rate, laptop["crm"].concurrency) == (usual["crm"].rate, 1)
    assert usual["erp"].breaker is not None
    assert staging["erp"].breaker is None
    assert staging["erp"].retry_rate == Rate(per_second=1 / 60)


@pytest.mark.parametrize(
    ("environments", "words"),
    [
        ({"staging": {"rates": "5/s"}}, "environment 'staging'.*did you mean 'rate'"),
        ({"staging": {"rate": "often"}}, "rate is 'often'"),
        ({"staging": {"timeout": "1s"}}, "no limit, as the environment 'staging'"),
        ({"staging": "5/s"}, "environments is"),
        ("staging", "environments is 'staging'"),
    ],
)
def test_a_mistake_for_another_environment_is_told_too(environments: Any, words: str) -> None:  # noqa: ANN401 - wrong
    app = Redrive("memory://", environment="production")

    with pytest.raises(ConfigurationError, match=words):
        app.handler("order.*", name="crm", environments=environments)


def test_an_environment_is_a_name() -> None:
    with pytest.raises(ConfigurationError, match="environment is 7"):
        Redrive("memory://", environment=7)  # type: ignore[arg-type]  # wrong on purpose
