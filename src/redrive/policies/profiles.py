"""Profiles: terms and a breaker that fit a kind of destination, under one name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from redrive.errors import refuse_unknown
from redrive.model.duration import Duration
from redrive.model.limits import Breaker
from redrive.policies.retry import Retry

__all__ = ["PROFILES", "Profile", "read_profile"]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile sets; an option that is given explicitly wins over it."""

    breaker: Breaker
    retry: Retry
    timeout: Duration


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "high_traffic": Profile(
            breaker=Breaker(failures=10, open_for="60s", longest_open="60s"),
            retry=Retry(max_attempts=3, base="1s"),
            timeout="3s",
        ),
        "development": Profile(
            breaker=Breaker(failures=3, open_for="10s"),
            retry=Retry(max_attempts=4, base="1s"),
            timeout="10s",
        ),
        "critical": Profile(
            breaker=Breaker(failures=20, open_for="120s", longest_open="120s"),
            retry=Retry(max_attempts=6, base="2s"),
            timeout="30s",
        ),
    }
)


def read_profile(name: object) -> Mapping[str, object]:
    """Return the options that a profile stands for."""
    refuse_unknown([str(name)], PROFILES, what="profile")
    return msgspec.structs.asdict(PROFILES[str(name)])
