"""Display: text that others wrote, so that whoever looks at it sees it and nothing obeys it."""

from __future__ import annotations

import re

__all__ = ["escape_controls", "escape_encoded", "safe", "safe_lines"]

_CONTROLS = re.compile("[\x7f-\x9f]")
_ENCODED = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


def safe(text: str) -> str:
    r"""Return text for one line: what a terminal would obey is spelled out, line breaks too.

    >>> safe(f"red: {chr(27)}[31m")
    'red: \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _spelled(one) for one in text)


def safe_lines(text: str) -> str:
    """Return text whose lines stay lines, with everything else spelled out as `safe` does."""
    return "\n".join(safe(line.replace("\t", "    ")) for line in text.split("\n"))


def escape_controls(document: str) -> str:
    r"""Return JSON that says the same without the control characters that JSON lets stand.

    >>> escape_controls(f'["{chr(0x9b)}2J"]')
    '["\\u009b2J"]'
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def escape_encoded(document: bytes) -> bytes:
    r"""Return the same of JSON in UTF-8.

    >>> escape_encoded(f'["{chr(0x9b)}2J"]'.encode())
    b'["\\u009b2J"]'
    """
    if b"\xc2" not in document and b"\x7f" not in document:
        return document
    return _ENCODED.sub(lambda found: b"\\u%04x" % found[0][-1], document)


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
