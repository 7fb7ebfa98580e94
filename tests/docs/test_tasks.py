"""Tasks of users of other systems, team leads, admins and analysts: each has its numbered block on a page that a test types.

The table states, for each task, what must be typed in its block. The blocks are typed and compared with the page by the test that is
named with each page.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.telemetry.sql.known_cluster import ANSWERS

ROOT = Path(__file__).parents[2]


class Tasks(NamedTuple):
    """Tasks of one kind of user."""

    page: str
    #: Module whose test types the page, and compares what is printed.
    typed_by: str
    #: {number: words that are typed, or written into a file, in the task's block}
    words: dict[int, tuple[str, ...]]


TASKS = {
    "Slurm": Tasks(
        "docs/how-to/from-slurm.md",
        "tests/system/test_foreign_pages.py",
        {
            1: ("sbatch train.sbatch", "--gres=gpu:2", "--signal=B:USR1@60", "--exclude=sim-9", "--qos=high", "srun "),
            2: ("--output=out-%j.txt", "cat out-2.txt", "$SLURM_JOB_ID", "$SLURM_CPUS_PER_TASK"),
            3: ("--array=0-5%2", "logs 3_4", "jobs --all --name sweep", "$SLURM_ARRAY_TASK_ID"),
            4: ("afterok:4", "afternotok:4", "afterany:4:5", "singleton"),
            5: ("squeue -u ada -t PD,R -o", "-S -i", "squeue -j 8 -h", "--start", "squeue -l -w sim-2"),
            6: ("sacct -j 4 -X -n -P -o", "-S yesterday -s FAILED", "--format=JobID,JobName%20"),
            7: ("--user=ada --name=next --state=PENDING", "--signal=USR1", "-s USR1"),
            8: ("srun -n 2", "scontrol show partition", "sprio -l", "sshare", "seff 11", "salloc", "sattach"),
            9: ("scontrol update JobId=12 TimeLimit=00:30:00 Priority=70", "release 12", "requeue 12"),
            10: ("srun --pty bash", "--kind session"),
            11: ("fairlead run --", "sbatch --wait"),
            12: ("ddp.sbatch", "MASTER_ADDR", "scontrol show hostnames", "rank 1 of 2"),
            13: ("--signal=B:USR1@60", "saved", "$SLURM_RESTART_COUNT", "start 1: goes on"),
            14: ("--sync project", "--outputs result=out/*", "fairlead cp 19:out/count.txt", "--export=EPOCHS"),
            15: ("port-forward board", "curl"),
        },
    ),
    "Kubernetes": Tasks(
        "docs/how-to/from-kubernetes.md",
        "tests/system/test_foreign_pages.py",
        {
            1: ("kind: Job", "submit -f train.yaml"),
            2: ("jobs --label",),
            3: ("fairlead show",),
            4: ("fairlead logs",),
            5: ("completionMode: Indexed", "logs"),
            6: ("--dry-run",),
            7: ("fairlead why",),
            8: ("fairlead hold", "fairlead release"),
            9: ("fairlead update",),
            10: ("fairlead cancel",),
            11: ("fairlead wait",),
            12: ("kind: PriorityClass", "kind: ConfigMap", "kind: Pod"),
        },
    ),
    "dstack and SkyPilot": Tasks(
        "docs/how-to/from-dstack.md",
        "tests/system/test_foreign_pages.py",
        dict.fromkeys(range(1, 17), ("fairlead ",)),
    ),
    "team leads": Tasks(
        "docs/how-to/for-team-leads.md",
        "tests/system/test_foreign_pages.py",
        {
            1: ("queues apply -f queues.yaml --dry-run", "guaranteed: {nvidia.com/gpu: 8}"),
            2: ("submit --dry-run", "estimate"),
            3: ("fairlead queues\n", "fairlead submit --name train"),
            4: ("FROM preemptions", "why new"),
            5: ("why eval", "changes"),
            6: ("users: {default: {nvidia.com/gpu: 2}", "larger_than_queue", "FROM user_limits"),
            7: ("lending: {nvidia.com/gpu: 0}", "research/robots keeps 4"),
            8: ("budget: {gpuHours: 1}", "% OF BUDGET", "queues -o csv"),
            9: ("queues -o wide", "PAST USE", "--at"),
            10: ("fairlead usage\n", "usage --by queue", "--from yesterday --to"),
            11: ('prices set "*" 2.50 EUR',),
            12: ("usage -o json > statement.json", "audit usage statement.json", "equal: "),
            13: ("nodes --map --at",),
            14: ("update 6 --priority 80 --time 30m", "move 6", "hold 6", "release 6"),
            15: ("queues hold default", "queues drain", "is drained", "queues release"),
            16: ("notify add --webhook", "--scope research/vision", "notify list"),
        },
    ),
    "admins": Tasks(
        "docs/how-to/for-admins.md",
        "tests/system/test_admin_page.py",
        {
            1: ("fairlead doctor",),
            2: ("fairlead nodes",),
            3: ("nodes --map",),
            4: ("fairlead packing",),
            5: ("cordon", "uncordon"),
            6: ("--dry-run",),
            7: ("fairlead drain",),
            8: ("fairlead taint",),
            9: ("quarantine",),
            10: ("fairlead maintenance",),
            11: ("fairlead rollout",),
            12: ("fairlead nodes", "faulted"),
            13: ("fairlead restore",),
            14: ("fairlead breaker",),
            15: ("agent install",),
            16: ("credentials",),
            17: ("nodes remove",),
            18: ("fairlead_gpus",),
            19: ("fairlead events",),
            20: ("queues apply",),
            21: ("audit verify", "replay"),
            22: ("audit export", "fairlead down", "fairlead up"),
        },
    ),
}


def blocks_of(page: str) -> dict[int, str]:
    """{number: text below its heading}."""
    text = (ROOT / page).read_text()
    found = re.split(r"^##+ (\d+)\. ", text, flags=re.MULTILINE)[1:]
    return {
        int(number): re.split(r"^## (?!\d)", below, flags=re.MULTILINE)[0]
        for number, below in zip(found[::2], found[1::2], strict=True)
    }


@pytest.mark.parametrize("kind", TASKS)
def test_every_task_has_a_block_that_types_it(kind: str) -> None:
    """Numbered from 1 without a gap, each with a command with its output below it, and with what the task is about."""
    tasks = TASKS[kind]
    blocks = blocks_of(tasks.page)
    assert list(tasks.words) == list(blocks) == list(range(1, len(blocks) + 1))
    for number, words in tasks.words.items():
        typed = "".join(re.findall(r"```\w*\n.*?```", blocks[number], re.DOTALL))
        assert "```console\n$ " in typed, number
        assert [word for word in words if word not in typed] == [], number


@pytest.mark.parametrize("kind", TASKS)
def test_the_module_that_types_a_page_names_it(kind: str) -> None:
    """A page that no test opens would not be typed at all."""
    tasks = TASKS[kind]
    assert Path(tasks.page).stem in (ROOT / tasks.typed_by).read_text()


def test_the_numbers_of_tasks_are_those_of_the_trial() -> None:
    """15 of Slurm, 12 of Kubernetes, 16 of dstack and SkyPilot, 16 of team leads, 22 of admins and 39 questions in SQL."""
    assert [len(tasks.words) for tasks in TASKS.values()] == [15, 12, 16, 16, 22]
    questions = re.findall(r"^\*\*(\d+)\. ", (ROOT / "docs/reference/sql.md").read_text(), re.MULTILINE)
    assert [int(number) for number in questions] == sorted(ANSWERS) == list(range(1, 40))
