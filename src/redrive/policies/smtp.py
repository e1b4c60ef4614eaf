"""SMTP classification: what a reply's code and its enhanced code mean for a mail."""

from __future__ import annotations

import re

from redrive.model.outcome import Nature
from redrive.policies.classify import Verdict

__all__ = ["classify_reply", "enhanced_of"]

_ENHANCED = re.compile(r"([245])\.(\d{1,3})\.(\d{1,3})(?=\s|$)", re.ASCII)
_FOR_GOOD = range(500, 600)
_FOR_NOW = range(400, 500)


def enhanced_of(text: str) -> str:
    """Return the enhanced code that a reply's text begins with, if it does.

    >>> enhanced_of("4.2.1 mailbox disabled, see 5.1.1")
    '4.2.1'
    """
    found = _ENHANCED.match(text)
    return found.group(0) if found else ""


def classify_reply(code: int, text: str = "") -> Verdict:
    """Decide about a refusal: every 4yz may heal, every 5yz will not.

    The enhanced code decides where the reply's own is neither; words decide nothing.

    >>> classify_reply(550, "5.1.1 no such user").rule
    'reply 550 5.1.1'
    >>> classify_reply(451, "550 times refused").nature
    <Nature.TRANSIENT: 'transient'>
    """
    enhanced = enhanced_of(text)
    rule = f"reply {code} {enhanced}".rstrip()
    if code in _FOR_GOOD:
        return Verdict(nature=Nature.TERMINAL, rule=rule)
    if code in _FOR_NOW:
        return Verdict(nature=Nature.TRANSIENT, rule=rule)
    nature = Nature.TERMINAL if enhanced.startswith("5") else Nature.TRANSIENT
    return Verdict(nature=nature, rule=f"default: {rule}")
