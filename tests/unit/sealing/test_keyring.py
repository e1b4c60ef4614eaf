"""Keys seal values that only who has them can read, and show themselves to nobody."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from redrive.clock import SystemEntropy
from redrive.errors import ConfigurationError, SecretError
from redrive.sealing import KeyRing, KeySource

ENTROPY = SystemEntropy()


def key(letter: str) -> str:
    return base64.b64encode(letter.encode() * 32).decode()


def ring(*ids: str) -> KeyRing:
    return KeyRing.read(",".join(f"{one}:{key(one[-1])}" for one in ids), origin="a test")


def sealed(keys: KeyRing, plain: bytes = b"plain", about: bytes = b"crm") -> bytes:
    return keys.seal(plain, about=about, entropy=ENTROPY)


def test_what_is_sealed_is_opened_by_its_key_alone() -> None:
    written = sealed(ring("k1"))

    assert ring("k2", "k1").open(written, about=b"crm", what="It") == b"plain"
    assert b"plain" not in written
    assert b"k1" in written
    with pytest.raises(SecretError, match=r"by the key 'k1', which is not among those here \(k2\)"):
        ring("k2").open(written, about=b"crm", what="It")
    with pytest.raises(SecretError, match="there is none"):
        KeyRing({}).open(written, about=b"crm", what="It")


def test_the_first_key_seals() -> None:
    keys = ring("new", "old")

    assert (keys.current, keys.ids) == ("new", ("new", "old"))
    assert ring("new").open(sealed(keys), about=b"crm", what="It") == b"plain"


def test_the_same_is_never_sealed_alike() -> None:
    assert len({sealed(ring("k1")) for _ in range(100)}) == 100


@pytest.mark.parametrize("place", [*range(1, 47)])
def test_any_change_is_found(place: int) -> None:
    written = bytearray(sealed(ring("k1", "k2")))
    assert len(written) == 1 + 1 + 2 + 12 + 5 + 16
    written[min(place, len(written) - 1)] ^= 1

    with pytest.raises(SecretError):
        ring("k1", "k2").open(bytes(written), about=b"crm", what="It")


def test_what_was_put_in_the_place_of_another_does_not_open() -> None:
    written = sealed(ring("k1"), about=b"erp")

    with pytest.raises(SecretError, match="another key of that id, or what is kept was changed"):
        ring("k1").open(written, about=b"crm", what="It")


@pytest.mark.parametrize("written", [b"", b"\1", b"\1\5k1", b"\2" + b"x" * 40, b"plain text"])
def test_what_is_no_envelope_is_said(written: bytes) -> None:
    with pytest.raises(SecretError, match="a form that this version does not know"):
        ring("k1").open(written, about=b"crm", what="It")


def test_another_key_of_the_same_id_opens_nothing() -> None:
    other = KeyRing.read(f"k1:{key('z')}", origin="a test")

    with pytest.raises(SecretError, match="it is another key of that id"):
        other.open(sealed(ring("k1")), about=b"crm", what="It")


def test_keys_are_read_by_lines_and_by_commas() -> None:
    text = f"# of this year\nk2:{key('2')}\n\n  k1:{key('1')} , k0:{key('0')}\n"

    assert KeyRing.read(text, origin="a test").ids == ("k2", "k1", "k0")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (key("s"), "have one without an id"),
        (f"a b:{key('s')}", "have one without an id"),
        (f":{key('s')}", "have one without an id"),
        ("k1:", "have one without an id"),
        ("k1:c2hvcnQ=", "not 32 bytes in base64"),
        ("k1:ssss!", "not 32 bytes in base64"),
        (f"k1:{key('s')},k1:{key('t')}", "the id 'k1' twice"),
    ],
)
def test_a_wrong_key_is_said_and_not_shown(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        KeyRing.read(text, origin="the file keys")

    assert "the file keys" in str(caught.value)
    assert "c3Nz" not in str(caught.value)
    assert "ssss" not in str(caught.value)


def test_without_a_key_nothing_is_sealed() -> None:
    with pytest.raises(ConfigurationError, match="There is no key to encrypt with"):
        sealed(KeyRing({}))


def test_keys_show_themselves_by_their_ids() -> None:
    assert repr(ring("k1", "k2")) == "KeyRing(k1, k2)"


def test_keys_come_from_a_variable_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"k1:{key('1')}")
    variable = {"REDRIVE_KEYS": f"k2:{key('2')}"}

    assert KeySource(environment=variable)().ids == ("k2",)
    assert KeySource(environment={})().ids == ()
    assert KeySource(str(file), environment={})().ids == ("k1",)
    with pytest.raises(ConfigurationError, match="keep them in one place"):
        KeySource(str(file), environment=variable)()
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        KeySource(str(tmp_path / "none"), environment={})()
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="cannot be read: it is no text"):
        KeySource(str(tmp_path / "odd"), environment={})()


def test_a_file_of_keys_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"k1:{key('1')}")
    source = KeySource(str(file), environment={})
    first = source()
    assert source() is first

    file.write_text(f"k2:{key('2')}\nk1:{key('1')}")
    os.utime(file, ns=(0, 0))

    assert source().ids == ("k2", "k1")
