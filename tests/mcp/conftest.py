"""The shop of the API's tests, and an assistant who speaks with it by the SDK's own client."""

from __future__ import annotations

from tests.web.conftest import served

__all__ = ["served"]
