"""The table of pages: every address, the view behind it, and what it needs."""

from __future__ import annotations

from redrive.web.pages import dead_letters, delivery, destinations, overview, records, replays
from redrive.web.pages.page import PageRoute, View

__all__ = ["PAGES"]


def _show(path: str, view: View, operation: str) -> PageRoute:
    return PageRoute(method="GET", path=path, view=view, operation=operation)


def _act(path: str, view: View, operation: str) -> PageRoute:
    return PageRoute(method="POST", path=path, view=view, operation=operation)


_GROUP = "/dead-letters/groups/{group}"
_DELIVERY = "/deliveries/{id:int}"
_REPLAY = "/replays/{id:int}"

PAGES: tuple[PageRoute, ...] = (
    _show("/", overview.show_overview, "status"),
    _show("/destinations", destinations.show_destinations, "gates"),
    _act("/destinations/pause", destinations.pause, "pause"),
    _act("/destinations/resume", destinations.resume, "resume"),
    _act("/breakers/reset", destinations.reset_breaker, "reset_breaker"),
    _show("/dead-letters", dead_letters.show_causes, "groups"),
    _show(_GROUP, dead_letters.show_group, "groups"),
    _show(f"{_GROUP}/replay", dead_letters.plan_group, "plan_replay"),
    _act(f"{_GROUP}/replay", dead_letters.replay_group, "start_replay"),
    _act(f"{_GROUP}/resolve", dead_letters.resolve_group, "resolve"),
    _act(f"{_GROUP}/delete", dead_letters.delete_group, "delete"),
    _show(_DELIVERY, delivery.show_delivery, "show"),
    _act(f"{_DELIVERY}/reveal", delivery.reveal, "reveal"),
    _act(f"{_DELIVERY}/replay", delivery.replay, "replay"),
    _act(f"{_DELIVERY}/resolve", delivery.resolve, "resolve"),
    _act(f"{_DELIVERY}/delete", delivery.delete, "delete"),
    _show("/replays", replays.show_replays, "replays"),
    _show(_REPLAY, replays.show_replay, "show_replay"),
    _act(f"{_REPLAY}/pause", replays.pause_replay, "pause_replay"),
    _act(f"{_REPLAY}/resume", replays.resume_replay, "resume_replay"),
    _act(f"{_REPLAY}/cancel", replays.cancel_replay, "cancel_replay"),
    _show("/audit", records.show_audit, "audit"),
    _show("/workers", records.show_workers, "status"),
)
