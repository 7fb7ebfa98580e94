"""Launchers of a job's ranks, and the effect of one rank's end on the others: the words, and their consequences.

The queue and the placer know only the second (`GangRule`); the first belongs to the agent
(fairlead_agent/launching/).
"""

from typing import Literal

#: torchrun, mpi: the command is run once on each node (mpi: on the first) and starts the processes itself; env: Fairlead
#: starts one process per GPU or task, with RANK set; none: the command is run once on each node; slurm: it is run on the first node,
#: with Slurm's variables, and starts tasks on all nodes by srun.
LAUNCHERS = ("torchrun", "mpi", "env", "none", "slurm")
#: Those whose first node alone decides how the run ends; the others wait for its commands.
LED = ("mpi", "slurm")
#: What a failing rank does to the others.
ON_FAILURE = ("stop", "continue")
#: Programs that say by their name how they are to be launched.
_BY_PROGRAM = {"torchrun": "torchrun", "mpirun": "mpi", "mpiexec": "mpi", "mpirun.openmpi": "mpi"}
PROCESSES_MAX = 1024

#: "": the first rank that fails ends the others. continue: each rank runs to its own end. leader: like "",
#: and a success of rank 0 is the success of the run, since the others only wait for its signal.
GangRule = Literal["", "continue", "leader"]


def launcher_of(launcher: str, command: list[str]) -> str:
    """Return an entry of LAUNCHERS: the job file's own, else the one that fits the command's first word."""
    return launcher or _BY_PROGRAM.get(command[0].rpartition("/")[2] if command else "", "none")


def gang_rule(launcher: str, on_failure: str) -> GangRule:
    """Return the placer's rule for a launcher (of LAUNCHERS) and a failure policy."""
    if launcher in LED:
        return "leader"
    return "continue" if on_failure == "continue" else ""
