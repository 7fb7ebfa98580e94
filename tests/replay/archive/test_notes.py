"""Notes and keys are spelled as others spell them; what was changed, forged or cut short is refused."""

from pathlib import Path

import pytest

from fairlead_replay.archive import archiver, checkpoints
from fairlead_replay.archive.checkpoints import BadNote, Signer, open_note, read_note, read_signer, read_verifier
from fairlead_replay.archive.merkle import EMPTY

#: The example in the documentation of golang.org/x/mod/sumdb/note.
THEIR_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
THEIR_NOTE = (
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
SIGNER = Signer("fairlead.log/test", bytes(range(32)))


def test_a_note_of_another_program_is_opened() -> None:
    """The published key and note: the spelling is the same."""
    text = open_note(THEIR_NOTE, read_verifier(THEIR_KEY))
    assert text == THEIR_NOTE.partition("\n\n")[0] + "\n"
    with pytest.raises(BadNote, match="changed or forged"):
        open_note(THEIR_NOTE.replace("your problem,", "my problem,"), read_verifier(THEIR_KEY))


def test_keys_come_back_from_their_spelling() -> None:
    """Both of them; a misspelled one is refused, and a secret one is not repeated."""
    assert read_signer(SIGNER.spelled).verifier.spelled == SIGNER.verifier.spelled
    assert read_verifier(SIGNER.verifier.spelled).key_id == SIGNER.verifier.key_id
    with pytest.raises(BadNote, match="misspelled"):
        read_verifier(SIGNER.verifier.spelled.replace("test", "toast"))
    with pytest.raises(BadNote, match="expected a secret key") as refused:
        read_signer(SIGNER.spelled[:-4])
    assert SIGNER.spelled[-20:-4] not in str(refused.value)
    with pytest.raises(BadNote, match="without spaces"):
        Signer("a name", bytes(32))


@pytest.mark.parametrize(
    "broken", ["", "text\n", "text\n\n", "text\n\n— name\n", "text\n\nname c2ln\n", "text\n\n— n !\n"]
)
def test_text_that_is_no_note_is_refused(broken: str) -> None:
    """Without an empty line, a signature, or base64."""
    with pytest.raises(BadNote):
        read_note(broken)


def test_a_note_of_another_key_is_not_ours() -> None:
    """The same name does not help."""
    other = Signer(SIGNER.verifier.name, bytes(32))
    with pytest.raises(BadNote, match="not signed by"):
        open_note(other.sign("text\n"), SIGNER.verifier)


def test_a_checkpoint_says_what_was_signed() -> None:
    """And is bound to the log whose name the key bears."""
    found = checkpoints.open_checkpoint(checkpoints.sign(SIGNER, 7, EMPTY, 10**18), SIGNER.verifier)
    assert found == ("fairlead.log/test", 7, EMPTY, "2001-09-09T01:46:40Z")
    with pytest.raises(BadNote, match="a checkpoint of another"):
        checkpoints.open_checkpoint(SIGNER.sign(f"another\n7\n{'A' * 43}=\n"), SIGNER.verifier)


@pytest.mark.parametrize(
    "text", ["origin\n7\n", "origin\n07\nAA==\n", "origin\n-1\nAA==\n", "origin\n7\nAA==\n", "origin\n٧\nAA==\n"]
)
def test_a_signed_text_that_is_no_checkpoint_is_refused(text: str) -> None:
    """A missing root, a size that is not spelled as a number, a root of another length."""
    with pytest.raises(BadNote):
        checkpoints.size_of(SIGNER.sign(text))


def test_a_book_yields_its_whole_checkpoints() -> None:
    """At any break in a write, the whole checkpoints before it are there, and nothing else."""
    notes = [checkpoints.sign(SIGNER, size, EMPTY, 0) for size in (1, 2, 3)]
    book = "".join(map(checkpoints.entry, notes))
    assert checkpoints.read_book(book) == notes
    begins = len(checkpoints.entry(notes[0]) + checkpoints.entry(notes[1]))
    for cut in range(begins, len(book)):
        assert checkpoints.read_book(book[:cut]) == notes[:2]
        assert checkpoints.whole(book[:cut]) == begins
    assert checkpoints.read_book("") == []


def test_a_key_file_is_for_its_owner(tmp_path: Path) -> None:
    """It comes back, is never written over, and is refused where others may read it."""
    path, made = tmp_path / "archive.key", archiver.generate_key("fairlead.log/test")
    archiver.write_key_file(path, made)
    assert path.stat().st_mode & 0o777 == 0o600
    assert archiver.read_key_file(path).spelled == made.spelled
    with pytest.raises(FileExistsError):
        archiver.write_key_file(path, made)
    path.chmod(0o640)
    with pytest.raises(BadNote, match="has mode 0640, expected 0600"):
        archiver.read_key_file(path)
    path.chmod(0o600)
    path.write_text("# nothing\n")
    with pytest.raises(BadNote, match="found 0 lines"):
        archiver.read_key_file(path)
