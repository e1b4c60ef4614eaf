"""The client: publish and operate through a server, by typed calls, with and without asyncio."""

from __future__ import annotations

from redrive.client.asynchronous import AsyncClient
from redrive.client.blocking import Client

__all__ = ["AsyncClient", "Client"]
