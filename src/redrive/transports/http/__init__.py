"""HTTP destinations: events sent to a URL, signed, guarded and classified by the answer."""

from __future__ import annotations

from redrive.transports.http.auth import ApiKey, Basic, Bearer, OAuth2
from redrive.transports.http.declaration import HttpBlueprint, http
from redrive.transports.http.options import HttpOptions

__all__ = ["ApiKey", "Basic", "Bearer", "HttpBlueprint", "HttpOptions", "OAuth2", "http"]
