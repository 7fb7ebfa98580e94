"""The log outside the bus: an archive of sealed segments, signed checkpoints, proofs, and restoring from it.

    merkle.py       the tree of RFC 6962 over the log's lines: roots and proofs
    notes.py        signed notes: who says so
    checkpoints.py  "the log was so long, and this was its root": a signed note, and the book of them
    segments.py     sealed pieces of the log, compressed, each with its manifest
    store.py        the archive's directory: what is in it, and how it grows
    follow.py       the process that follows the log and lets the archive grow
    verify.py       does what is there agree: log, archive, checkpoints
    proofs.py       one commit, provable to somebody who has nothing but a checkpoint
    restore.py      a new stream from an archive

docs/how-to/archive.md is for those who run and read one; docs/adr/0015-independent-archiver-signs-the-log.md says why it is so.
"""
