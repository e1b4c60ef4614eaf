"""What a Django project says about Redrive: which app, and which database."""

from __future__ import annotations

import weakref
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from redrive.app.config import Settings
from redrive.app.redrive import Redrive
from redrive.cli.target import load_app
from redrive.errors import ConfigurationError

__all__ = ["connection_of", "get_app", "store_url"]

_SHARED_OPTIONS = (
    "passfile",
    "service",
    "servicefile",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
)
"""What Django's driver and ours call by the same name."""

_following: weakref.WeakSet[Redrive] = weakref.WeakSet()
"""The apps whose store is Django's database, wherever that is."""


def get_app() -> Redrive:
    """Return the app that REDRIVE_APP names.

    If nothing says where its store is, it is Django's own database, if that is PostgreSQL. Tests
    have a database of another name, so it is looked up anew each time.
    """
    target = getattr(settings, "REDRIVE_APP", None)
    if not isinstance(target, str):
        raise ConfigurationError(
            f"The Django setting REDRIVE_APP is {target!r}; write the module and the variable of "
            'your app, such as REDRIVE_APP = "shop.events:app".'
        )
    app = load_app(target)
    if app in _following or app.settings.store == Settings().store:
        connection = connection_of(None)
        if connection.vendor == "postgresql":
            _following.add(app)
            _keep_in(app, store_url(connection.settings_dict))
    return app


def _keep_in(app: Redrive, store: str) -> None:
    if app.settings.store != store:
        app.sync.close()
        app.settings = msgspec.structs.replace(app.settings, store=store)


def connection_of(alias: str | None) -> Any:  # noqa: ANN401 - Django has no types
    """Return the connection of a database; by default of the one that REDRIVE_DATABASE names."""
    name = alias or getattr(settings, "REDRIVE_DATABASE", DEFAULT_DB_ALIAS)
    if name not in connections:
        raise ConfigurationError(
            f"There is no database {name!r} in Django's DATABASES; there are "
            f"{', '.join(connections)}."
        )
    return connections[name]


def store_url(database: dict[str, Any]) -> str:
    """Return the store URL of an entry of DATABASES.

    >>> store_url({"NAME": "shop", "USER": "ann", "HOST": "db", "PORT": 5432})
    'postgresql://ann@db:5432/shop'
    """
    options = database.get("OPTIONS") or {}
    query = {name: str(options[name]) for name in _SHARED_OPTIONS if options.get(name)}
    user, password = str(database.get("USER") or ""), str(database.get("PASSWORD") or "")
    host, port = str(database.get("HOST") or ""), str(database.get("PORT") or "")
    who = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    if ":" in host and not host.startswith(("/", "[")) and "," not in host:
        host = f"[{host}]"
    where = f"{host}:{port}" if port else host
    if host.startswith("/"):  # the folder of a socket
        where, query["host"] = "", host
        if port:
            query["port"] = port
    at = f"{who}@" if who else ""
    name = quote(str(database.get("NAME") or ""), safe="")
    return f"postgresql://{at}{where}/{name}" + (f"?{urlencode(query)}" if query else "")
