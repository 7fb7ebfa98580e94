"""XIDs that are a program's own error: told to the user with the end of the run that held the GPU. Pure."""

from collections.abc import Iterable

from fairlead_agent.records import RunEntry
from fairlead_agent.run import Exit, RunKey
from fairlead_schemas import xids

#: Different errors that one run is told of.
NOTES_MAX = 4


class Notes:
    """{run: what its GPUs have reported}."""

    def __init__(self) -> None:
        self._notes: dict[RunKey, list[str]] = {}

    def add(self, gpu: str, number: int, runs: Iterable[RunEntry]) -> None:
        """An XID of a GPU; it concerns whoever holds it."""
        if xids.decision(number) == "nothing":
            return
        for run in runs:
            if run.open and gpu in run.gpus:
                told = self._notes.setdefault(run.key, [])
                note = f"{gpu} reported {xids.words(number)}"
                if note not in told and len(told) < NOTES_MAX:
                    told.append(note)

    def told(self, key: RunKey, exit: Exit) -> Exit:
        """How the run has ended, with what its GPUs had to say."""
        notes = self._notes.pop(key, [])
        return exit._replace(message="; ".join([*([exit.message] if exit.message else []), *notes])) if notes else exit
