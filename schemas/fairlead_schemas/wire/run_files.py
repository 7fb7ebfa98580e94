"""Questions to a node's agent about the files of a run, and its answers (request/reply; nothing stored).

The files are those of the run's own directory, and the outputs that were kept by name after its end. A path that begins
with the name of an output means that output; any other one is relative to the directory. Links are named, never followed.
"""

import msgspec

from fairlead_schemas.units.validation import decode

#: Content of one answer, which in base64 is below the size of a message; and entries of one answer.
CHUNK_BYTES_MAX = 384 * 1024
ENTRIES_MAX = 1000


class ReadFiles(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Question: a directory's entries after `after`, or a part of a file's content."""

    job: str
    attempt: int
    rank: int
    #: "" for the run's directory itself; "/" for the outputs by name.
    path: str = ""
    after: str = ""
    offset: int = 0
    bytes_max: int = CHUNK_BYTES_MAX


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file, link or directory. Names that are not UTF-8 are shown with their other bytes replaced, and cannot be read."""

    name: str
    kind: str  # file | link | directory | other
    size: int = 0
    modified_ns: int = 0
    executable: bool = False
    #: Of a link.
    target: str = ""


class RunFiles(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer: what is at the path, and its entries or a part of its content."""

    #: Reason why there is none; "" if there is.
    error: str = ""
    #: True where nothing is there, rather than something that cannot be read.
    absent: bool = False
    entry: FileEntry | None = None
    entries: tuple[FileEntry, ...] = ()
    #: There are further entries.
    more: bool = False
    data: bytes = b""


_encoder = msgspec.json.Encoder(order="deterministic")
_question = msgspec.json.Decoder(ReadFiles)
_answer = msgspec.json.Decoder(RunFiles)


def encode(message: ReadFiles | RunFiles) -> bytes:
    """Return the bytes of a question or an answer."""
    return _encoder.encode(message)


def decode_question(payload: bytes) -> ReadFiles:
    """Decode a question. Raises msgspec.MsgspecError."""
    return decode(_question, payload)


def decode_files(payload: bytes) -> RunFiles:
    """Decode an answer. Raises msgspec.MsgspecError."""
    return decode(_answer, payload)
