"""Wording: what a message says, without what differs from one failure to the next.

Names of the program (fields, columns, types) and status codes tell causes apart, so they stay; what
passed through it (ids, numbers, times, addresses) goes. Every step reads the text once, or looks at
a few letters around a place: a message cannot make it slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from itertools import groupby

__all__ = ["normalised"]

_MARK = "#"
_LONGEST_INPUT = 4_000
_LONGEST_NAME = 60
_NEAR = 40
"""So many letters beside a quotation are looked at for the word next to it."""

_QUOTES = {"'": "'", '"': '"', "`": "`", "“": "”"}
_PREFIXES = frozenset("bBrRuUfF")
_IN_WORDS = "_-.:,/\\@+~"
_JOINS = frozenset("_-.:,+")
_SIGNS = frozenset("-+")
_HEX_WORD = frozenset("0123456789abcdefABCDEF:-")
_HEX = frozenset("0123456789abcdefABCDEF")
_UUID_PARTS = (8, 4, 4, 4, 12)
_UUID_LENGTH = 36
_LEAST_HEX_WORD = 12
_LEAST_HEX = 6
_LEAST_RANDOM = 10
_LEAST_TEMPORARY = 8
_LONGEST_HOST = 260
_LEAST_SENTENCE = 3
_FILES = frozenset(
    ("c", "cfg", "csv", "h", "html", "js", "json", "py", "pyx", "sql", "toml", "ts", "txt", "yaml")
)
_DATED = frozenset(
    (
        *("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar", "Apr", "May"),
        *("Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    )
)

_DEMANDS = (" is a required", " is required", " must be", " cannot be null")
_IN_A_ROW = frozenset((", ", " and ", " or ", ", and ", ", or "))

# Beside these words stand names of the program ...
_KINDS = frozenset(
    (
        *("argument", "attribute", "class", "claim", "codec", "collection", "column", "columns"),
        *("constraint", "currency", "database", "encoding", "exchange", "extension", "feature"),
        *("field", "fields", "flag", "function", "header", "index", "key", "keys", "keyword"),
        *("locale", "member", "method", "mode", "model", "module", "operator", "option", "package"),
        *("parameter", "permission", "property", "queue", "relation", "role", "scheme", "schema"),
        *("scope", "section", "sequence", "setting", "stream", "table", "tag", "template", "topic"),
        *("trigger", "type", "variable", "view"),
    )
)
# ... and beside these what passed through it.
_VALUES = frozenset(
    (
        *("account", "address", "but", "customer", "email", "entry", "from", "given", "got"),
        *("host", "hostname", "input", "literal", "line", "path", "received", "server", "string"),
        *("tenant", "text", "to", "url", "user", "value", "values", "was"),
    )
)
# What is said under these names is about the failure, as in `message='Bad Gateway'`.
_TELLING = frozenset(
    (
        *("code", "cause", "description", "detail", "details", "error", "errors", "field", "kind"),
        *("loc", "message", "msg", "param", "reason", "status", "string", "title", "type"),
    )
)

# What libraries print of the values that passed through: from here, to there.
_PRINTED = (
    ("input_value=", ", input_type="),
    ("[SQL: ", ""),
    ("[parameters: ", ""),
    ("Failing row contains (", "\n"),
    (")=(", ") "),
    ("\nLINE ", "\n"),
)
_PHRASES = "|".join(sorted(re.escape(one.phrase) for one in HTTPStatus))
# A digit that is to stay is written as a letter nobody uses until all others are gone.
_KEPT = str.maketrans("0123456789.", "".join(map(chr, range(0x10600, 0x1060B))))
_AS_IT_WAS = {kept: digit for digit, kept in _KEPT.items()}
# Each looks at a bounded number of letters, of a text in which no two spaces follow each other.
_CODES = (
    re.compile(
        r"(?i)(?<![a-z])(?:status(?:[ _]?code)?|http(?:/\d(?:\.\d)?)?|code|errno|winerror|smtp)"
        r"['\"]? ?[:=]? ?\[?-?(\d{1,5})(?![\w.:-]*\w)"
    ),
    re.compile(
        r"(?i:(?<![a-z])(?:answered|error|failed with|got|responded|response|returned):?)"
        r" \(?(\d{3,4})(?=$|[^\w ]| [^a-z\d]| (?:after|at|by|for|from|in|on|to|when|while|with) )"
    ),
    re.compile(r"^\W{0,3}([1-5]\d\d)(?=$|[,:)] ?| [A-Z(-])"),
    re.compile(r"\((\d{3,5})(?=, ?b?['\"])"),
    re.compile(rf"(?<!\w)([1-5]\d\d)(?= (?:{_PHRASES}))"),
    re.compile(r"(?:['\"]|(?<!\d)\d{3}[ -])([245]\.\d{1,3}\.\d{1,3})(?= )"),
)
_LAST_WORD = re.compile(r"([A-Za-z_]+)(?:\(s\))?:? ?$")
_NEXT_WORD = re.compile(r" ([A-Za-z_]+)")
_LAST_KEY = re.compile(r"([A-Za-z_]+)(?:['\"] ?: ?| ?= ?)[\[({]{0,2}$")
_NAME = re.compile(r"[A-Za-z_$](?:[A-Za-z_$.\-]|(?<=[A-Za-z])\d(?!\d)|\[\d*\])*")
_HOST = re.compile(r"(?:[A-Za-z0-9_-]+\.)+([A-Za-z0-9_-]+):\d{1,5}|\[?[0-9a-f:.]*::[0-9a-f:.]*\]?")


def normalised(text: str, *, keeps_names: bool = False, keeps_quoted: bool = False) -> str:
    """Return a text on one line, with `#` for what differs from one failure to the next.

    That is numbers, hexadecimal, UUIDs, e-mail addresses, hosts with their ports, instants, such
    parts of paths, and what is quoted, unless it is a name: by the words beside it, by its form, or
    because `keeps_names`. With `keeps_quoted` all that is quoted is read like the rest.

    >>> normalised("user 'ann' <ann@example.org> has 17 orders in /tmp/tmpx3k_9/a.csv")
    "user '#' <#> has # orders in /tmp/#/a.csv"
    >>> normalised("no column 'iban': 502 Bad Gateway")
    "no column 'iban': 502 Bad Gateway"
    """
    said = " ".join(_without_values(text[:_LONGEST_INPUT]).split())
    for code in _CODES:
        said = code.sub(_protected, said)
    pieces = _pieces(said, keeps_names=keeps_names, keeps_quoted=keeps_quoted)
    return "".join(_joined(_undated(list(pieces)))).strip().translate(_AS_IT_WAS)


def _without_values(text: str) -> str:
    for begin, end in _PRINTED:
        if begin not in text:
            continue
        first, *others = text.split(begin)
        kept = [first]
        for other in others:
            _, ending, rest = other.partition(end) if end else (other, "", "")
            kept.append(f"{begin}{_MARK}{ending}{rest}")
        text = "".join(kept)
    return text


def _protected(found: re.Match[str]) -> str:
    start = found.start(1) - found.start()
    whole = found.group()
    return whole[:start] + whole[start:].translate(_KEPT)


def _undated(pieces: list[str]) -> list[str]:
    """Take the names of days and months out of dates."""
    for place, piece in enumerate(pieces):
        if piece in _DATED and _MARK in pieces[max(0, place - 2) : place + 4]:
            pieces[place] = _MARK
    return pieces


def _joined(pieces: list[str]) -> list[str]:
    """Write several values in a row as one, so that lists and instants of any length agree."""
    out: list[str] = []
    for piece in pieces:
        if piece == " " and out[-1:] == [" "]:
            continue
        if piece == _MARK:
            if out[-3:] == [_MARK, ",", " "]:
                del out[-2:]
                continue
            if len(out) > 1 and out[-1] in _JOINS and out[-2] == _MARK:
                out.pop()
                continue
            if out and out[-1] in _SIGNS and not (len(out) > 1 and out[-2][-1].isalnum()):
                out.pop()
        out.append(piece)
    return out


def _pieces(
    text: str,
    *,
    keeps_names: bool = False,
    keeps_quoted: bool = False,
    is_inmost: bool = False,
) -> Iterator[str]:
    begin = 0
    is_kept = False
    for start, end in () if keeps_quoted else _quotations(text):
        between = text[begin:start]
        yield from _words(between)
        inner = text[start + 1 : end]
        # Of several in a row all are what the first is.
        is_next = begin > 0 and between in _IN_A_ROW and text[end + 1 : end + 2] != ":"
        if is_next:
            is_kept = is_kept and _is_name(inner)
        else:
            is_kept = _is_telling(text, start, end, keeps_names=keeps_names)
        yield text[start]
        if is_kept:
            yield from _kept(inner, is_inmost=is_inmost)
        else:
            yield _MARK
        yield text[end]
        begin = end + 1
    yield from _words(text[begin:])


def _kept(inner: str, *, is_inmost: bool) -> Iterator[str]:
    if _is_name(inner) and "[" not in inner:
        yield inner
    elif is_inmost:
        yield from _words(inner)
    else:
        yield from _pieces(inner, is_inmost=True)


def _is_telling(text: str, start: int, end: int, *, keeps_names: bool) -> bool:
    """Tell whether what is quoted says what went wrong, and not with which value."""
    inner, is_name = text[start + 1 : end], _is_name(text[start + 1 : end])
    if text[start] == "`" or (is_name and keeps_names):
        return True
    if not any(map(str.isalnum, inner)):
        return bool(inner)
    before = text[max(0, start - _NEAR) : start].rstrip("bBrRuUfF")
    if text[end + 1 : end + 2] == ":" and text[start - 1 : start] in "{ ,":
        return is_name
    if _is_spoken(inner) or before.endswith(tuple(f"{chr(one)}, " for one in _KEPT.values())):
        return True
    key = _LAST_KEY.search(before)
    if key is not None:
        return key[1].lower() in _TELLING
    return is_name and _is_named(inner, before, text[end + 1 : end + _NEAR])


def _is_named(name: str, before: str, after: str) -> bool:
    """Tell by the words beside it, else by its form, whether a name is one of the program."""
    last, following = _LAST_WORD.search(before), _NEXT_WORD.match(after)
    word = last[1].lower() if last else ""
    if word in _KINDS or word in _VALUES:
        return word in _KINDS
    if (following and following[1].lower() in _KINDS) or after.startswith(_DEMANDS):
        return True
    return any(one in name for one in "_.$") or (
        not name.islower() and not name.istitle() and not before.endswith(": ")
    )


def _is_spoken(text: str) -> bool:
    """Tell whether it is a sentence, or the line of a status."""
    is_sentence = text[-1] in ".!?" and text.count(" ") >= _LEAST_SENTENCE - 1
    return is_sentence or ord(text[0]) in _AS_IT_WAS


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def _quotations(text: str) -> Iterator[tuple[int, int]]:
    """Find where quotations begin and end; an apostrophe inside a word is none."""
    closed = 0
    for quote_at in range(len(text)):
        quote = text[quote_at]
        if quote_at < closed or quote not in _QUOTES or _is_apostrophe(text, quote_at):
            continue
        closing = _QUOTES[quote]
        end = text.find(closing, quote_at + 1)
        while end > 0 and text[end + 1 : end + 2].isalnum():
            end = text.find(closing, end + 1)
        if end < 0:
            # Nothing closes this kind of quote from here on, so none is looked for again.
            text = text.replace(quote, " ")
            continue
        yield quote_at, end
        closed = end + 1


def _is_apostrophe(text: str, quote_at: int) -> bool:
    before = text[max(0, quote_at - 2) : quote_at]
    if not before[-1:].isalnum():
        return False
    # The letter of b'...' is no word.
    return before[-1] not in _PREFIXES or before[:-1].isalnum()


def _words(text: str) -> Iterator[str]:
    previous = ""
    for kind, letters in groupby(text, key=_kind):
        run = "".join(letters)
        if kind == "word":
            yield from _word(run, previous)
            previous = run
        elif kind == "space":
            yield " "
        else:
            yield from run


def _kind(letter: str) -> str:
    if letter.isalnum() or letter in _IN_WORDS:
        return "word"
    return "other" if letter.isprintable() and letter != " " else "space"


def _word(word: str, previous: str) -> Iterator[str]:
    begin = 0
    for start in _uuids(word):
        yield from _plain_word(word[begin:start], "")
        yield _MARK
        begin = start + _UUID_LENGTH
    yield from _plain_word(word[begin:], previous)


def _uuids(word: str) -> Iterator[int]:
    """Find where UUIDs begin: cut at their hyphens, their parts look like words."""
    end = 0
    for hyphen, letter in enumerate(word):
        start = hyphen - _UUID_PARTS[0]
        if letter == "-" and start >= end:
            parts = word[start : start + _UUID_LENGTH].split("-")
            if tuple(map(len, parts)) == _UUID_PARTS and _HEX.issuperset("".join(parts)):
                yield start
                end = start + _UUID_LENGTH


def _plain_word(word: str, previous: str) -> Iterator[str]:
    core = word.rstrip(".,:")
    if _is_address(core) or _is_hex(core) or _is_host(core, previous):
        yield _MARK
    elif "://" in core:
        scheme, _, rest = core.partition("://")
        yield from _parts(scheme)
        yield "://"
        yield _MARK
        yield from _path(rest[len(rest.partition("/")[0]) :])
    elif "/" in core or "\\" in core:
        yield from _path(core)
    else:
        yield from _parts(core)
    yield from word[len(core) :]


def _path(path: str) -> Iterator[str]:
    for is_separator, letters in groupby(path, key=lambda one: one in "/\\"):
        part = "".join(letters)
        yield part if is_separator or not _is_variable_part(part) else _MARK


def _is_address(word: str) -> bool:
    name, _, host = word.partition("@")
    return bool(name and host)


def _is_hex(word: str) -> bool:
    return len(word) >= _LEAST_HEX_WORD and _HEX_WORD.issuperset(word) and _has_digit(word)


def _is_host(word: str, previous: str) -> bool:
    if previous.lower() in {"host", "server"} and "." in word:
        return True
    if len(word) > _LONGEST_HOST or word.count(":") == 0:
        return False
    found = _HOST.fullmatch(word)
    return found is not None and found[1] not in _FILES


def _is_variable_part(part: str) -> bool:
    return _has_digit(part) or (part.startswith("tmp") and len(part) >= _LEAST_TEMPORARY)


def _parts(word: str) -> Iterator[str]:
    for is_part, letters in groupby(word, key=str.isalnum):
        run = "".join(letters)
        if not is_part:
            yield from run
        elif not _has_digit(run):
            yield run
        elif (
            run[0].isdigit()
            or len(run) >= _LEAST_RANDOM
            or (len(run) >= _LEAST_HEX and _HEX.issuperset(run))
        ):
            yield _MARK
        else:
            for is_number, some in groupby(run, key=str.isdigit):
                yield _MARK if is_number else "".join(some)


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))
