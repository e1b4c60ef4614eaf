"""What is used of the driver although it is not public is still there, as we know it."""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version

import asyncpg
import pytest
from asyncpg.pool import PoolConnectionProxy
from packaging.requirements import Requirement

from redrive.stores.postgres.connection import Connection
from tests.docs.pages import ROOT

USED = {
    (asyncpg.Connection, "_introspect_types"): ["self", "typeoids", "timeout"],
    (asyncpg.Connection, "_drop_local_statement_cache"): ["self"],
    (asyncpg.Connection, "_drop_local_type_cache"): ["self"],
    (asyncpg.Connection, "_on_release"): ["self", "stacklevel"],
    (PoolConnectionProxy, "__init__"): ["self", "holder", "con"],
    (PoolConnectionProxy, "_detach"): ["self"],
}
"""Each method, and the parameters it is called with."""


@pytest.mark.parametrize(
    ("owner", "name"), USED, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_method_that_is_not_public_is_as_we_call_it(owner: type, name: str) -> None:
    method = getattr(owner, name, None)

    assert method is not None, (
        f"asyncpg {asyncpg.__version__} has no {owner.__name__}.{name}, which redrive uses; keep "
        "the upper bound of asyncpg in pyproject.toml below it, or do without"
    )
    assert list(inspect.signature(method).parameters) == USED[owner, name]


def test_our_connection_overrides_what_the_driver_calls() -> None:
    assert Connection._introspect_types is not asyncpg.Connection._introspect_types  # noqa: SLF001 - as above


def test_the_driver_has_an_upper_bound_that_the_one_tried_here_is_under() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    for extra in ("postgres", "test"):
        (bound,) = (one for one in map(Requirement, extras[extra]) if one.name == "asyncpg")
        assert "<" in str(bound.specifier)
        assert version("asyncpg") in bound.specifier
