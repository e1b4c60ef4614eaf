"""The shop of the API's tests, and clients of it."""

from __future__ import annotations

from tests.web.conftest import served

__all__ = ["served"]
