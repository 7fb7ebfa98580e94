"""Proof of one commit for a verifier with only a checkpoint: the commit is in the log, and at a given place.

    make(directory, sequence) -> Proof        check(proof, key) -> Checkpoint
    with `before`, also that the log of an earlier checkpoint is the beginning of this one

A proof holds one line of the log and about 20 hashes for a million; it reveals no other part of the log.
"""

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fairlead_replay.archive.checkpoints import BadNote, LogCheckpoint, Verifier, open_checkpoint, size_of
from fairlead_replay.archive.contents import ArchiveContents
from fairlead_replay.archive.merkle import consistency_proof, grew, includes, inclusion_proof, leaf_hash
from fairlead_replay.export import ExportError, decode_line

VERSION = 1


class BadProof(ValueError):
    """A proof that proves nothing, or one that cannot be made; the message says why."""


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Proof that a line is the log's line at a sequence."""

    v: int
    sequence: int
    #: The line as in the archive, without the newline.
    line: str
    #: The tree's hashes from the line's leaf up, base64.
    hashes: list[str]
    #: The signed checkpoint that it leads to.
    checkpoint: str
    #: Where the prover was given an earlier checkpoint: its size, and the hashes that lead from it to the one above.
    before: int = 0
    growth: list[str] = []


def make(directory: Path, sequence: int, *, before: int = 0) -> Proof:
    """Return a proof for one sequence up to the newest checkpoint. `before`: the size of an earlier checkpoint; the proof then
    also shows that this log continues the log of that checkpoint. Reads the whole archive. Raises BadProof, NoArchive,
    ArchiveDamaged.
    """
    shelf = ArchiveContents(directory)
    notes = shelf.notes()
    if not notes:
        raise BadProof(f"{directory} has no checkpoint yet")
    checkpoint = open_checkpoint(notes[-1], shelf.verifier)
    if not 1 <= sequence <= checkpoint.size:
        raise BadProof(f"the newest checkpoint covers sequences 1 to {checkpoint.size}, asked for {sequence}")
    if not 0 <= before <= checkpoint.size:
        raise BadProof(f"the earlier checkpoint: expected a size up to {checkpoint.size}, found {before}")
    leaves: list[bytes] = []
    wanted = b""
    for line in shelf.lines():
        leaves.append(leaf_hash(line))
        if len(leaves) == sequence:
            wanted = line
        if len(leaves) == checkpoint.size:
            break
    return Proof(
        v=VERSION,
        sequence=sequence,
        line=wanted.decode(),
        hashes=_spelled(inclusion_proof(leaves, sequence - 1)),
        checkpoint=notes[-1],
        before=before,
        growth=_spelled(consistency_proof(leaves, before)) if before else [],
    )


def check(proof: Proof, key: Verifier, earlier: str = "") -> LogCheckpoint:
    """The checkpoint that vouches for the line, if the proof holds; `earlier`: a checkpoint that the reader holds, whose log
    must be the beginning of this one. Raises BadProof."""
    try:
        checkpoint = open_checkpoint(proof.checkpoint, key)
        known = open_checkpoint(earlier, key) if earlier else None
        stored = decode_line(proof.line.encode())
    except (BadNote, ExportError) as error:
        raise BadProof(str(error)) from error
    if stored.sequence != proof.sequence:
        raise BadProof(
            f"expected the line of sequence {proof.sequence} as in the proof, found sequence {stored.sequence}"
        )
    leaf = leaf_hash(proof.line.encode())
    if not includes(leaf, proof.sequence - 1, checkpoint.size, _hashes(proof.hashes), checkpoint.root):
        raise BadProof(f"the line is not that of sequence {proof.sequence} in the log of size {checkpoint.size}")
    if known is not None:
        _check_growth(proof, known, checkpoint)
    return checkpoint


def read(encoded: bytes) -> Proof:
    """A proof from its JSON. Raises BadProof."""
    try:
        proof = msgspec.json.decode(encoded, type=Proof)
        size_of(proof.checkpoint)
    except (msgspec.MsgspecError, UnicodeDecodeError, BadNote) as error:
        raise BadProof(f"not a proof: {error}") from error
    if proof.v != VERSION:
        raise BadProof(f"version {proof.v}, this reader knows {VERSION}")
    return proof


def _check_growth(proof: Proof, known: LogCheckpoint, checkpoint: LogCheckpoint) -> None:
    if known.size == checkpoint.size and known.root == checkpoint.root:
        return
    if proof.before != known.size:
        raise BadProof(f"the proof starts from a checkpoint of size {proof.before}, yours has {known.size}")
    if not grew(known.size, known.root, checkpoint.size, checkpoint.root, _hashes(proof.growth)):
        raise BadProof(
            f"the log of size {checkpoint.size} does not begin with the one of size {known.size} that you know"
        )


def _spelled(hashes: Sequence[bytes]) -> list[str]:
    return [base64.b64encode(one).decode() for one in hashes]


def _hashes(spelled: Sequence[str]) -> list[bytes]:
    try:
        return [base64.b64decode(one, validate=True) for one in spelled]
    except (binascii.Error, ValueError) as error:
        raise BadProof("the hashes of a proof are base64") from error
