"""The words of a job file about saving, turned into integers: `checkpoint: {signal: SIGUSR1, notice: 2m, every: 30m}`.

A signal may be written as Slurm's users do ("USR1"). An empty `checkpoint: {}` says that the job tells when it has saved.
"""

from fairlead_schemas import quantities
from fairlead_schemas.checkpoints import Checkpoint, fault_of
from fairlead_schemas.collecting import Reading
from fairlead_schemas.jobspec import CheckpointWords
from fairlead_schemas.requesting import amount

#: What clouds give before they take a machine back.
DEFAULT_NOTICE = "2m"


def checkpoint_of(words: CheckpointWords | None, total_ns: int, reading: Reading) -> Checkpoint | None:
    """Return the checkpoint settings of a job file's words, None for a job without them. Mistakes are noted in
    `reading`.
    """
    if words is None:
        return None
    signal = words.signal.strip().upper()
    if signal and not signal.startswith("SIG"):
        signal = "SIG" + signal
    wanted = words.notice if words.notice != "" else DEFAULT_NOTICE if signal or words.command else 0
    found = Checkpoint(
        signal=signal, command=tuple(words.command),
        notice_ns=amount(reading, "checkpoint.notice", quantities.parse_duration, wanted),
        every_ns=amount(reading, "checkpoint.every", quantities.parse_duration, words.every),
    )  # fmt: skip
    wrong = fault_of(found, total_ns)
    if wrong is not None and all(error.field != f"checkpoint.{wrong[0]}" for error in reading.errors):
        reading.wrong(f"checkpoint.{wrong[0]}", wrong[1])
    return found
