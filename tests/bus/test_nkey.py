"""Keys: NATS's spelling, and files that others could read."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_bus import nkey
from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.main import bus_key

#: Of the NATS documentation (docs.nats.io, "NKey authentication"): a seed and the public key that its own tool told.
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def test_a_seed_of_the_nats_documentation_has_the_public_key_of_the_documentation() -> None:
    """Spelled and computed as NATS's own tool does."""
    pair = nkey.from_seed(SEED)
    assert (pair.seed, pair.public) == (SEED, PUBLIC)
    assert nkey.check_public(PUBLIC) == PUBLIC


def test_a_signature_is_the_keys_own() -> None:
    """Ed25519: the same nonce and key give the same 64 bytes, another key gives others."""
    pair, other = nkey.generate(), nkey.generate()
    assert nkey.from_seed(pair.seed).sign(b"nonce") == pair.sign(b"nonce") != other.sign(b"nonce")
    assert len(pair.sign(b"nonce")) == 64


@given(st.text(max_size=70))
def test_text_that_is_no_seed_is_refused_and_not_repeated(text: str) -> None:
    """No exception of a decoder is raised, and the message does not show a possibly mistyped secret."""
    with pytest.raises(nkey.BadKey) as caught:
        nkey.from_seed(text)
    assert len(text) < 8 or text not in str(caught.value)


@pytest.mark.parametrize("place", [1, 20, 57])
def test_one_wrong_letter_is_noticed(place: int) -> None:
    """The check sum covers all of it."""
    wrong = SEED[:place] + ("A" if SEED[place] != "A" else "B") + SEED[place + 1 :]
    with pytest.raises(nkey.BadKey):
        nkey.from_seed(wrong)


def test_a_key_of_another_kind_is_refused() -> None:
    """An account's public key is none of a user."""
    raw = bytes([0]) + bytes(32)
    account = base64.b32encode(raw + nkey.binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")
    with pytest.raises(nkey.BadKey, match="another kind"):
        nkey.check_public(account)
    with pytest.raises(nkey.BadKey, match="begin with SU"):
        nkey.from_seed(PUBLIC)


def test_a_file_is_written_for_its_owner_alone_and_read_again(tmp_path: Path) -> None:
    """Mode 0600 from the first moment; the comment says whose it is and holds no secret."""
    path, pair = tmp_path / "n1.nk", nkey.generate()
    nkey.write_file(path, pair, "n1")
    assert path.stat().st_mode & 0o777 == 0o600
    assert nkey.read_file(path).public == pair.public
    assert [line for line in path.read_text().splitlines() if line.startswith("#") and pair.seed in line] == []
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660, 0o777])
def test_a_file_with_a_loose_mode_is_refused_with_the_cure(tmp_path: Path, mode: int) -> None:
    """A reader of the file can act in its owner's name."""
    path = tmp_path / "n1.nk"
    nkey.write_file(path, nkey.generate(), "n1")
    path.chmod(mode)
    with pytest.raises(nkey.BadKey, match=f"mode {mode:04o}, expected 0600.*chmod 600 {path}"):
        nkey.read_file(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "found 0 lines"),
        (f"{SEED}\n{SEED}\n", "found 2 lines"),
        ("secret\n", "begin with SU"),
        ("\0" * 5000, "begin"),
    ],
)
def test_a_file_that_holds_no_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    """The setting, the file and what was expected; what was found may be a secret and is not shown."""
    path = tmp_path / "n1.nk"
    path.write_text(text)
    path.chmod(0o600)
    monkeypatch.setenv(nkey.SETTING, str(path))
    with pytest.raises(BadSetting, match=told) as caught:
        bus_key()
    assert str(caught.value).startswith(f"{nkey.SETTING}: {path}: ")
    assert "secret" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unset name means a token; a name of nothing is a mistake."""
    monkeypatch.delenv(nkey.SETTING, raising=False)
    assert bus_key() is None
    monkeypatch.setenv(nkey.SETTING, str(tmp_path / "gone"))
    with pytest.raises(BadSetting, match="gone: cannot read the bus key"):
        bus_key()
