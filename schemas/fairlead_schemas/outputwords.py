"""The job file's `output: {keep: 7d, max: 1Gi}`: how long, and how much of, a run's output stays on its node.

Only the agent acts on these fields. It finds them in the job file, so no command and no event carries them; a submit
checks their range. The settings of the node are upper bounds for both.
"""

from typing import NamedTuple

from fairlead_schemas import quantities
from fairlead_schemas.collecting import Reading
from fairlead_schemas.jobspec import OutputWords
from fairlead_schemas.requesting import amount

KEEP_NS_MIN = 60 * quantities.SECOND_NS
KEEP_NS_MAX = 365 * 86400 * quantities.SECOND_NS
#: Of stdout and of stderr, each. The agent ships 1 MiB of a file at a time, so a lower bound could cut what is not shipped yet.
MAX_MIB_MIN = 1
MAX_MIB_MAX = 2**20

KEEP, MAX = "output.keep", "output.max"


class OutputBounds(NamedTuple):
    """Bounds that a job sets for its own output; 0: none in addition to those of the node."""

    keep_ns: int = 0
    #: Of each of its two files.
    max_mib: int = 0

    @property
    def age_s(self) -> float:
        """Seconds since the end of the run for which its output is kept; 0: no bound."""
        return self.keep_ns / quantities.SECOND_NS

    @property
    def bytes_max(self) -> int:
        """Bytes that are kept of the end of each file; 0: no bound."""
        return self.max_mib * 2**20


NODE_BOUNDS = OutputBounds()


def output_of(words: OutputWords, reading: Reading) -> OutputBounds:
    """Read the bounds of a job file; notes every value that is out of range."""
    keep_ns = max_mib = 0
    if words.keep != "":
        keep_ns = amount(reading, KEEP, quantities.parse_duration, words.keep, KEEP_NS_MIN)
        if not KEEP_NS_MIN <= keep_ns <= KEEP_NS_MAX:
            reading.wrong(KEEP, f'expected a duration from 1m to 365d, found "{words.keep}"; {_DEFAULT}')
    if words.max != "":
        max_mib = amount(reading, MAX, quantities.parse_memory, words.max, MAX_MIB_MIN)
        if not MAX_MIB_MIN <= max_mib <= MAX_MIB_MAX:
            reading.wrong(MAX, f'expected a size from 1Mi to 1Ti, found "{words.max}"; {_DEFAULT}')
    return OutputBounds(keep_ns, max_mib)


def described(bounds: OutputBounds) -> str:
    """Describe in one line how much output a node keeps of such a job."""
    size = f"the last {quantities.format_memory(bounds.max_mib)} of stdout and of stderr" if bounds.max_mib else ""
    age = f"for {quantities.format_duration(bounds.keep_ns)} after its end" if bounds.keep_ns else ""
    own = ", ".join(part for part in (size, age) if part)
    return f"{own}, or less where its node's settings are lower" if own else "as its node's settings have it"


_DEFAULT = "leave it out for the node's own bound"
