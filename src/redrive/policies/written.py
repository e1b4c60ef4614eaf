"""Written: how secrets are written in free text, such as errors, answers and command lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

__all__ = ["BLANK", "without_written"]

BLANK = "[redacted]"
"""What stands in the place of a secret."""

_PAIR = re.compile(
    r"""
    (?<![\w.-])
    (?:
        (?P<name>[\w.-]{1,100})
        (?P<joint>\\?["'`)\]]?\s{0,3}(?:=>|[=:])\s{0,3}\(?)
      | (?P<option>--?[a-z][\w.-]{0,98})
        (?:\s{1,3}|\\?["'],\s{0,3})
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A name and what joins it to its value, or an option of a command: a line, or a list of words."""
_VALUE = re.compile(
    r"""
    \\?"(?:[^"\\]|\\.)*"?
  | '(?:[^'\\]|\\.)*'?
  | [^\s,;&"'()\[\]{}<>]+
    """,
    re.VERBOSE | re.DOTALL,
)
_MORE_PARTS = re.compile(r"""(?:[,;]\s?[\w-]{1,30}=[^\s,;&"'()\[\]{}<>]+)+""")
_PARTED = re.compile(r"[a-z]\w{0,9}=\w", re.IGNORECASE)
"""How a value of several parts begins, such as a signature with its time."""
_REST_OF_LINE = re.compile(r"[^\r\n\"'}]*")
_COLLECTION = re.compile(
    r"""[\[{(]\s{0,9}(?:\\?["'\[{(]|-?\d|true|false|null|none)""", re.IGNORECASE
)
"""How a list or an object begins; behind `unexpected token: {` there is none."""
_FLAT_COLLECTION = re.compile(r"""[\[{(][^\[\]{}()"'\r\n]{0,1000}[\]})]""")
_PART = re.compile(
    r"""
    (?P<open>[\[{(]) | (?P<close>[\]})]) | \\.
  | "(?:[^"\\]|\\.)*"? | '(?:[^'\\]|\\.)*'? | [^\[\]{}()"'\\]+ | \\
    """,
    re.VERBOSE | re.DOTALL,
)
_SCHEME = re.compile(r"\b(bearer|basic)(\s{1,9}|%20)([\w.~+/=-]{3,})", re.IGNORECASE)
_TOKEN = re.compile(r".*(?:[\d_~+/=]|[a-z][A-Z])|.*\w[.-]\w")
"""What is in a token, and in no word."""
_BASE64 = re.compile(r".*(?:[\d+=]|[a-z][A-Z])")
_LEAST_OF_A_WORDLIKE_TOKEN = 6
_SPOKEN = re.compile(
    r"(?<![\w.-])(password|passwd|passphrase|pwd|token)(\s{1,3})"
    r"(?=[\w.~+/-]*\d)(?=[\w.~+/-]*[a-z])[\w.~+/-]{6,}",
    re.IGNORECASE,
)
_WORDS = frozenset(
    (
        *("a", "an", "and", "are", "argument", "as", "at", "auth", "authentication"),
        *("authorization", "be", "but", "by", "can", "cannot", "challenge", "charset"),
        *("credential", "credentials", "error", "expected", "expired", "failed", "flag", "for"),
        *("format", "given", "has", "have", "header", "headers", "if", "in", "instead"),
        *("invalid", "is", "it", "method", "missing", "must", "needs", "nor", "not", "of", "on"),
        *("option", "or", "parameter", "realm", "rejected", "required", "requires", "scheme"),
        *("schemes", "scope", "security", "should", "than", "that", "the", "then", "to", "token"),
        *("tokens", "too", "type", "unsupported", "value", "was", "were", "when", "which"),
        *("will", "with", "without"),
    )
)
"""What stands behind a scheme or an option that a sentence speaks of."""
_OURS = re.compile(r"(?<![a-z0-9])(?:rdt_[a-z2-7]{12}|rds)_[a-z2-7]{20,}")
"""Access tokens and sessions of Redrive's own, also when their end is cut off."""
_USER = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,20}://[^\s/:\"']{0,200}:)[^\s/\"']{1,500}@", re.IGNORECASE
)
"""A password reaches to the last `@` before the path."""
_BARE_QUERY = re.compile(r"(/[^\s?#\"'/]{0,200}\?)[^\s=&#\"'?/]{8,}(?=[\s&#\"']|$)")
_STEMS = re.compile(
    "auth|basic|bearer|cookie|credential|csrf|jwt|key|otp|pass|pin|pwd|secret|sess|sig|token|xsrf",
    re.IGNORECASE,
)
"""Something of this is in each of the usual names."""


def without_written(text: str, hides: Callable[[str], bool], *, only_usual: bool) -> str:
    """Return free text without what is written in it as a secret, in time linear in its length.

    `hides` tells whether a name is that of a secret; with `only_usual` it knows the usual ones.
    """
    if "rdt_" in text or "rds_" in text:
        text = _OURS.sub(BLANK, text)
    if "/" in text:
        text = _USER.sub(rf"\1{BLANK}@", text)
        text = _BARE_QUERY.sub(rf"\1{BLANK}", text)
    if only_usual and _STEMS.search(text) is None:  # as most texts are
        return text
    text = _SCHEME.sub(_scheme, text)
    text = _SPOKEN.sub(rf"\1\2{BLANK}", text)
    return "".join(_pairs(text, hides))


def _pairs(text: str, hides: Callable[[str], bool]) -> Iterator[str]:
    place = 0
    while (found := _PAIR.search(text, place)) is not None:
        yield text[place : found.end()]
        place = found.end()
        if hides(found["name"] or found["option"]):
            end = _end_of_secret(text, found)
            if end > place:
                yield BLANK
                place = end
    yield text[place:]


def _scheme(found: re.Match[str]) -> str:
    """Blank the token behind a scheme, but not a word, as in `the bearer of news`."""
    scheme, blank, token = found.groups()
    word = token.rstrip(".-").partition("=")[0]
    if word.lower() in _WORDS:
        return found[0]
    if scheme.lower() == "basic":
        is_token = _BASE64.match(token) is not None
    else:
        is_token = len(word) >= _LEAST_OF_A_WORDLIKE_TOKEN or _TOKEN.match(token) is not None
    return f"{scheme}{blank}{BLANK}" if is_token else found[0]


def _end_of_secret(text: str, found: re.Match[str]) -> int:
    """Return where the value of a secret name ends; where it begins if it is none."""
    place = found.end()
    value = _VALUE.match(text, place)
    if found["option"] is not None:
        is_word = value is None or value[0].startswith("-") or value[0].lower() in _WORDS
        return place if value is None or is_word else value.end()
    end = _end_of_collection(text, place)
    if end > place or value is None or not _may_be_secret(found["joint"], value[0]):
        return end
    # The parts of these have blanks and semicolons between them.
    is_long = "auth" in found["name"].lower() or "cookie" in found["name"].lower()
    more = _REST_OF_LINE if is_long else _MORE_PARTS if _PARTED.match(value[0]) else None
    rest = more.match(text, value.end()) if more is not None else None
    return value.end() if rest is None or value[0][0] in "\"'\\" else rest.end()


def _end_of_collection(text: str, place: int) -> int:
    """Return where the list or object ends that begins here or just before; `place` if none does.

    One that was cut off reaches to the end.
    """
    is_inside = text[place - 1] == "("
    start = place - is_inside
    if text.startswith(BLANK, place):
        return place
    if _COLLECTION.match(text, start) is None:
        flat = _FLAT_COLLECTION.match(text, start)
        is_told = flat is not None and any(one.isalnum() for one in flat[0])
        return flat.end() - is_inside if flat is not None and is_told else place
    depth = 0
    for part in _PART.finditer(text, start):
        depth += (part["open"] is not None) - (part["close"] is not None)
        if depth == 0:
            return part.end() - is_inside
    return len(text)


def _may_be_secret(joint: str, value: str) -> bool:
    """Tell a secret from a word of a sentence, as in `unexpected token: end of input`."""
    if value.strip("\"'\\").startswith(BLANK) or not any(one.isalnum() for one in value):
        return False
    is_sentence = ":" in joint and joint[-1].isspace() and value.rstrip(".").isalpha()
    return not (is_sentence and value.islower())
