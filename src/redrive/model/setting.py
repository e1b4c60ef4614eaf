"""Settings as people see them: what is in force, and who said so."""

from __future__ import annotations

import msgspec

__all__ = ["SettingInForce"]


class SettingInForce(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with its value as text, without a password, and where that comes from.

    `origin` is empty for what nobody has said anything about; `default` is what holds then.
    """

    name: str
    value: str
    default: str
    origin: str = ""
