"""`audit verify --archive` and related commands: success in a line or as JSON, each fault by name."""

import json
from pathlib import Path

import pytest

from fairlead_replay.archive import archiver
from fairlead_replay.archive.contents import BOOK
from tests.cli.conftest import Run
from tests.replay.archive.scenes import LOG, SIGNER, fill, store_at

KEY = SIGNER.verifier.spelled


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive without a cluster."""
    monkeypatch.setenv("FAIRLEAD_DATA", str(tmp_path / "nothing"))
    fill(store_at(tmp_path / "archive"), LOG)
    return tmp_path / "archive"


def test_an_archive_is_checked_without_a_log(run: Run, archive: Path) -> None:
    """By itself; the line says that no log was looked at."""
    ran = run("audit", "verify", "--archive", str(archive), "--key", KEY)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(
        f"ok: no log (none was found; name one with --data or --nats), the archive up to {len(LOG)} ("
    )


def test_without_a_key_the_archives_own_is_used_and_reported(run: Run, archive: Path) -> None:
    """It does not prove who signed, and the output says so."""
    ran = run("audit", "verify", "--archive", str(archive))
    assert ran.code == 0
    assert ran.out.endswith(f"the key is the archive's own word, compare it with the one that you were given: {KEY}\n")


def test_damage_is_exit_code_1_and_json(run: Run, archive: Path) -> None:
    """Each finding with its place and sequence."""
    (archive / "tail.jsonl").write_bytes(b"")
    ran = run("audit", "verify", "--archive", str(archive), "--key", KEY, "-o", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["ok"]) == (1, False)
    assert found["found"][0]["where"] == "archive"
    assert found["found"][0]["sequence"] == found["archived"] + 1


def test_a_book_of_ones_own_grows_by_good_checks_only(run: Run, archive: Path, tmp_path: Path) -> None:
    """Once for each state; never by a check that failed."""
    mine = tmp_path / "mine"
    check = ("audit", "verify", "--archive", str(archive), "--key", KEY, "--remember", str(mine))
    assert run(*check).code == run(*check).code == 0
    book = mine.read_text()
    assert book.count("— ") == 1
    (archive / BOOK).write_text("")
    (archive / "tail.jsonl").write_bytes(b"")
    assert run(*check).code == 1
    assert mine.read_text() == book


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("verify", "--archive", "{here}", "--key", KEY), "archive.json: not an archive's"),
        (("verify", "--archive", "{archive}", "--key", KEY[:-3]), "--key: expected a public key"),
        (("verify", "--archive", "{archive}", "--key", KEY.replace("test", "toast")), "misspelled"),
        (("verify", "--archive", "{archive}", "--known", "{here}/none"), "--known: there is no"),
        (("prove", "999", "--archive", "{archive}"), f"covers sequences 1 to {len(LOG)}, asked for 999"),
        (("prove", "1", "--archive", "{archive}", "--since", "999"), f"expected a size up to {len(LOG)}, found 999"),
        (("check", "{here}/none", "--key", KEY), "No such file"),
        (("check", "{archive}/archive.json", "--key", KEY), "not a proof"),
        (("check", "{archive}/archive.json"), "a proof cannot vouch for itself"),
        (("restore", "{archive}"), "name a new directory with --data"),
        (("key", "{archive}/archive.json"), "a key is never written over"),
        (("key", "{here}/new", "--name", "two words"), "without spaces"),
    ],
)
def test_invalid_options_are_refused_by_name(
    run: Run, archive: Path, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    """With the expected value; only the message is printed."""
    ran = run("audit", *(word.replace("{here}", str(tmp_path)).replace("{archive}", str(archive)) for word in words))
    assert ran.code != 0
    assert ran.out == ""
    assert says in ran.err


def test_a_key_is_made_for_its_owner(run: Run, tmp_path: Path) -> None:
    """The public half is printed, the secret one is in the file alone."""
    ran = run("audit", "key", str(tmp_path / "k"), "--name", "fairlead.log/x")
    made = archiver.read_key_file(tmp_path / "k")
    assert ran.out == f"{made.verifier.spelled}\n"
    assert made.verifier.name == "fairlead.log/x"
