"""The file that describes services, rules, sources and schedules: read from TOML, and written."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date, time
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from redrive.errors import ConfigurationError, refuse_unknown
from redrive.operations import GatewayDocument

__all__ = ["read_gateway", "write_gateway"]

_OF_TENANT = {"weight": "weights", "rate": "rates"}


def read_gateway(path: Path) -> GatewayDocument:
    """Read what a file describes; its settings are left to who reads settings."""
    try:
        read = tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"There is no file {path}; name one with services, rules or sources, or write what is "
            f"in the store to it: redrive export-config > {path}"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read as TOML: {error}.") from error
    services = _tables(read, "services", path)
    tenants = _tables(read, "tenants", path)
    for name, one in tenants.items():
        refuse_unknown(one, _OF_TENANT, what=f"key of the tenant {name!r} in {path.name}:")
    if tenants:
        services = {name: _with_tenants(one, tenants) for name, one in services.items()}
    return GatewayDocument(
        services=services,
        rules=_tables(read, "rules", path),
        sources=_tables(read, "sources", path),
        schedules=_tables(read, "schedules", path),
    )


def _tables(read: Mapping[str, Any], name: str, path: Path) -> dict[str, dict[str, Any]]:
    found = read.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise ConfigurationError(
            f"{name} in {path} is no table of tables; write one for each, such as [{name}.crm]."
        )
    for key, one in found.items():
        _refuse_beyond_json(one, f"{name}.{key}", path)
    return found


def _refuse_beyond_json(value: object, where: str, path: Path) -> None:
    """Refuse what TOML has and JSON has not, in which documents are kept."""
    match value:
        case dict():
            for key, one in value.items():
                _refuse_beyond_json(one, f"{where}.{key}", path)
        case list():
            for one in value:
                _refuse_beyond_json(one, where, path)
        case float() if not isfinite(value):
            raise ConfigurationError(
                f"{where} in {path} is {value}; write a number, or leave it out."
            )
        case date() | time():
            raise ConfigurationError(
                f"{where} in {path} is a date or a time; put it in quotes, so that it is text."
            )


def _with_tenants(
    service: dict[str, Any], tenants: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Give a service the weights and rates of all tenants, but for what it says itself."""
    fairness = service.get("fairness", {})
    if not isinstance(fairness, dict):
        return service
    said = {
        plural: {name: one[key] for name, one in tenants.items() if key in one}
        for key, plural in _OF_TENANT.items()
    }
    merged = {
        **fairness,
        **{key: {**values, **fairness.get(key, {})} for key, values in said.items() if values},
    }
    return {**service, "fairness": merged}


def write_gateway(document: GatewayDocument) -> str:
    """Return services, rules, sources and schedules as a file has them."""
    tables = msgspec.structs.asdict(document)
    return tomli_w.dumps({name: _written(one) for name, one in tables.items() if one})


def _written(value: object) -> Any:  # noqa: ANN401 - a value of TOML
    """Return a value without what TOML cannot say: nothing."""
    if isinstance(value, dict):
        return {key: _written(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_written(one) for one in value]
    return value
