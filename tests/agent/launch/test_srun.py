"""srun, scontrol and output files of the launcher `slurm`, in runs of two agents on one bus."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_agent.launch.batch_variables import output_file, variables
from fairlead_agent.launch.mpi_daemons import fill
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.reports import ExitSeen
from tests.agent.launch.pair import Pair, rank


async def ran(
    data: Path, script: str, *, tasks: int = 2, cpus: int = 4, **words: Any
) -> tuple[ExitSeen, list[str], list[str]]:
    """(end of the first node's part, its lines, those of the second) of a script on two nodes."""
    pair = await Pair(data).open()
    try:
        for number, node in enumerate(("n1", "n2")):
            spec = {"launcher": "slurm", "processesPerNode": tasks, "workdir": str(data), **words}
            order = rank(number, "/bin/bash", "-c", script, **spec)
            await pair.placer.desire(
                node, msgspec.structs.replace(order, cpu_milli=1000 * cpus, name="a/b", user="ada")
            )
        ended = (await pair.ended(1))[0]
    finally:
        await pair.close()
    first, second = (
        lines_of(data / node / f"agent-{node}" / "runs", number) for number, node in enumerate(("n1", "n2"))
    )
    return ended, first, second


def lines_of(runs: Path, number: int) -> list[str]:
    (directory,) = runs.glob(f"7.*.{number}")
    return [line for name in ("stdout", "stderr") for line in (directory / name).read_text().splitlines()]


def test_one_process_per_task_on_every_node(tmp_path: Path) -> None:
    """The script runs on the first node alone. Each task has its number, its node's variables and the script's environment."""
    script = r"""
      export SECRET="it's two
lines"
      cd sub
      echo script $SLURM_NNODES $SLURM_NTASKS "$SLURM_TASKS_PER_NODE" "$SLURM_JOB_NODELIST" $SLURM_JOB_NAME $SLURM_JOB_USER
      srun bash -c 'echo "$SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME $FAIRLEAD_NODE ${SECRET/$'"'\n'"'/+} ${PWD##*/} $1"' x "a 'b'"
      srun -N1 -n1 -w n2 bash -c 'echo step $SLURM_STEP_ID of $SLURM_NTASKS; exit 7'; echo "code $?"
      scontrol show hostnames $SLURM_JOB_NODELIST
    """
    (tmp_path / "sub").mkdir()
    ended, first, second = asyncio.run(ran(tmp_path, script))
    assert ended.exit_code == 0
    assert first[0] == "script 2 4 2(x2) n[1-2] a/b ada"
    assert sorted(first[1:3]) == [f"{at} {at} 0 n1 n1 it's two+lines sub a 'b'" for at in (0, 1)]
    assert first[3:] == ["code 7", "127.0.0.1", "127.0.0.2"]
    assert sorted(second) == [
        "2 0 1 n2 n2 it's two+lines sub a 'b'",
        "3 1 1 n2 n2 it's two+lines sub a 'b'",
        "step 1 of 1",
    ]


def test_a_step_that_cannot_start_says_so_in_sruns_name(tmp_path: Path) -> None:
    """A command that is missing, that is no program, whose interpreter is missing; a directory and files that are not there. No line
    names a file of the agent's, and shells' own words (echo, true) are programs, too.
    """
    script = r"""
      echo data > plain; printf '#!/no/such/sh\ntrue\n' > odd; chmod +x odd
      srun -N1 -n1 nosuch --option; echo "code $?"
      srun -N1 -n1 ./nosuch; echo "code $?"
      srun -N1 -n1 ./plain; echo "code $?"
      srun -N1 -n1 ./odd; echo "code $?"
      srun -N1 -n2 -l nosuch; echo "code $?"
      srun -N1 -n1 -w n2 nosuch; echo "code $?"
      srun -N1 -n1 --chdir=/no/such true; echo "code $?"
      srun -N1 -n1 --output=no/such/file true; echo "code $?"
      srun -N1 -n1 echo fine; srun -N1 -n1 true; echo "code $?"
    """
    ended, first, second = asyncio.run(ran(tmp_path, script))
    assert ended.exit_code == 0
    assert [line for line in first if line.startswith("code")] == [
        f"code {code}" for code in (127, 127, 126, 127, 127, 127, 1, 1, 0)
    ]
    assert "fine" in first
    words = [line for line in (*first, *second) if "srun:" in line]
    assert sorted(line.removeprefix("0: ").removeprefix("1: ") for line in words) == sorted(
        [
            *("srun: error: n1: task 0: nosuch: command not found",) * 2,
            "srun: error: n1: task 1: nosuch: command not found",
            "srun: error: n2: task 0: nosuch: command not found",
            "srun: error: n1: task 0: ./nosuch: command not found",
            "srun: error: n1: task 0: ./plain: permission denied",
            "srun: error: n1: task 0: ./odd: its interpreter /no/such/sh is not there",
            'srun: error: --chdir: there is no directory "/no/such"',
            "srun: error: n1: task 0: cannot write no/such/file",
        ]
    )
    assert not [line for line in (*first, *second) if str(tmp_path) in line or "/slurm/" in line]


def test_steps_stay_within_the_job_and_its_files_have_the_output(tmp_path: Path) -> None:
    """Labels, the highest exit code, refusals; the job file's files hold both nodes' lines, for the name of the job as one part."""
    script = r"""
      srun -l -n 3 --cpu-bind=none bash -c 'echo out $SLURM_PROCID; exit $SLURM_PROCID'; echo "code $?"
      srun -n 9 true; echo "too many $?"
      srun -n 9 -O true; echo "overcommitted $?"
      srun -N 3 true; echo "no third node $?"
      srun -w n7 true; echo "no such node $?"
      srun --frobnicate=1 -N1 --ntasks-per-node=1 --output=step-%t-of-%j.txt echo filed
      srun --het-group=0 true; echo "het $?"
      srun -n 1 bash -c 'kill -9 $$'; echo "killed $?"
      echo failed >&2; exit 3
    """
    output = {"stdout": "logs/{name}-{job}.out", "stderr": "logs/{array}_{index:04}.err"}
    ended, *_ = asyncio.run(ran(tmp_path, script, output=output))
    assert ended.exit_code == 3
    out = (tmp_path / "logs/a-b-7.out").read_text().splitlines()
    assert sorted(line for line in out if "out" in line) == ["0: out 0", "1: out 1", "2: out 2"]
    assert [line for line in out if "out" not in line] == [
        "code 2",
        "too many 1",
        "overcommitted 0",
        "no third node 1",
        "no such node 1",
        "het 1",
        "killed 137",
    ]
    errors = (tmp_path / "logs/7_0000.err").read_text()
    assert errors.count("srun: error") == 4 and errors.endswith("failed\n")
    assert (tmp_path / "step-0-of-7.txt").read_text() == "filed\n"


def test_a_signal_reaches_the_script_whose_output_is_copied(tmp_path: Path) -> None:
    """output.sh passes USR1 on, and what the program wrote last is in the file."""
    box = tmp_path / "box"
    fill(box, hosts=("n1",), hostfile="", nodes="n1 10.0.0.1 1\n")
    script = "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    words = ["/bin/sh", f"{box}/output.sh", "new", f"{tmp_path}/deep/er/out", "", "bash", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 5
        os.killpg(process.pid, signal.SIGKILL)
    assert (tmp_path / "deep/er/out").read_text() == "ready\ncaught\n"


@pytest.mark.parametrize("mode", ["new", "append"])
def test_an_output_file_that_cannot_be_written_costs_the_file_only(tmp_path: Path, mode: str) -> None:
    """The program runs, its output stays where it is kept, and one line names the file."""
    box = tmp_path / "box"
    fill(box, hosts=("n1",), hostfile="", nodes="n1 10.0.0.1 1\n")
    words = ["/bin/sh", f"{box}/output.sh", mode, "/proc/none/out", "", "sh", "-c", "echo hi; exit 3"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stdout) == (3, "hi\n")
    assert ran.stderr == "fairlead: the output file /proc/none/out cannot be written\n"


def test_placement_becomes_variables_and_file_names() -> None:
    """An element of an array on one of two nodes with different numbers of tasks."""
    order = RunOrder(
        job="12_3",
        attempt=2,
        rank=1,
        epoch=1,
        nodes=("g1", "g2"),
        hosts=("a", "b"),
        cpu_milli=8000,
        memory_mib=4096,
        gpus=("U1", "U2"),
        name="x/y",
        user="ada",
        queue="research",
    )
    found = variables(order, (4, 2), "g2")
    expected = {
        "JOB_ID": "12_3",
        "ARRAY_JOB_ID": "12",
        "ARRAY_TASK_ID": "3",
        "NODEID": "1",
        "NTASKS": "6",
        "TASKS_PER_NODE": "4,2",
        "PROCID": "4",
        "JOB_NODELIST": "g[1-2]",
        "CPUS_ON_NODE": "8",
        "JOB_CPUS_PER_NODE": "8(x2)",
        "GPUS": "4",
        "GPUS_ON_NODE": "2",
        "RESTART_COUNT": "1",
        "MEM_PER_NODE": "4096",
        "JOB_PARTITION": "research",
    }
    assert {name: found[f"SLURM_{name}"] for name in expected} == expected and found["SLURMD_NODENAME"] == "g2"
    assert "SLURM_GPUS" not in variables(msgspec.structs.replace(order, gpus=()), (4, 2), "g2")
    path = output_file("{name}/{array}_{index:04}.{node}.{rank}.{other}", order, "g2")
    assert path == "x-y/12_0003.g1.1.{other}"
