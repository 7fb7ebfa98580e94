"""Questions to one node's agent: bytes of what a run has printed, from its own files."""

from collections.abc import Mapping

import msgspec

from fairlead_agent.output import read_piece
from fairlead_agent.records import RunEntry
from fairlead_agent.run import RunKey
from fairlead_agent.runtimes.kept_output import Keep
from fairlead_agent.runtimes.port import Runtime
from fairlead_schemas.ids import is_job_id
from fairlead_schemas.reports import ReadOutput, encode

_REFUSAL = b'{"error":"expected an ReadOutput with a job id and stdout or stderr"}'


def printed(question: bytes, runtime: Runtime, runs: Mapping[RunKey, RunEntry], keep: Keep) -> bytes:
    """The answer to an ReadOutput: an OutputPiece, or {"error"} where it is none."""
    try:
        wanted = msgspec.json.decode(question, type=ReadOutput)
    except msgspec.MsgspecError:
        return _REFUSAL
    if not is_job_id(wanted.job) or wanted.stream not in ("stdout", "stderr"):
        return _REFUSAL
    key = RunKey(wanted.job, wanted.attempt, wanted.rank)
    run = runs.get(key)
    path = runtime.output(key)[0 if wanted.stream == "stdout" else 1]
    ended = run is None or not run.open
    piece = read_piece(path, wanted.stream, wanted.offset, wanted.bytes_max, ended)
    if ended and not path.parent.exists():
        piece = msgspec.structs.replace(piece, gone=keep.words())
    return encode(piece)
