"""Archive of the log outside the bus: sealed segments, signed checkpoints, proofs, and restoring from it.

    merkle.py       the tree of RFC 6962 over the log's lines: roots and proofs
    checkpoints.py        signed notes: authenticity of a text
    checkpoints.py  "the log was so long, and this was its root": a signed note, and the book of them
    segments.py     sealed pieces of the log, compressed, each with its manifest
    store.py        the archive's directory: its contents and its growth
    archiver.py       the process that follows the log and lets the archive grow
    verify.py       check that log, archive and checkpoints agree
    proofs.py       proof of one commit for a verifier with only a checkpoint
    restore.py      a new stream from an archive

docs/how-to/archive.md is for operators and readers of an archive;
docs/adr/0015-independent-archiver-signs-the-log.md has the reasons.
"""
