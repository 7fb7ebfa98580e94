"""Tasks of SkyPilot and dstack: turned into job files where the words allow, and named where they do not."""

import os
import subprocess
from typing import Any

import pytest

from fairlead.errors import InputRefused
from fairlead.jobfile import reader

SKY = """
name: train
num_nodes: 2
workdir: .
resources:
  infra: aws
  accelerators: {H100: 8}
  cpus: 32+
  memory: 256+
  use_spot: true
  image_id: docker:registry.example.org/train:3
  job_recovery: {max_restarts_on_errors: 2}
envs: {MODEL: 13b, STEPS: 500, TOKEN: }
setup: pip install -r requirements.txt
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --node_rank=$SKYPILOT_NODE_RANK train.py
"""
DSTACK = """
type: task
name: train
nodes: 2
image: registry.example.org/train:3
env: [MODEL=13b, HF_TOKEN]
commands:
  - pip install -r requirements.txt
  - torchrun --node_rank=$DSTACK_NODE_RANK train.py
resources: {gpu: "A100,H100:8", cpu: 16.., memory: 128GB.., shm_size: 16GB, disk: 500GB}
max_duration: 72h
retry: {on_events: [error], duration: 1h}
volumes: [datasets:/data]
spot_policy: auto
"""


def load(text: str) -> tuple[dict[str, Any], reader.Loaded]:
    """Return the one job of a file, and all that was found."""
    loaded = reader.load(text, name="task.yaml")
    reader.check_all(loaded.jobs)
    (job,) = loaded.jobs
    return dict(job), loaded


def test_a_task_of_skypilot_is_taken() -> None:
    """Its resources, nodes, environment and lines; what is about clouds is noted, what is sent there has to be ignored by name."""
    job, loaded = load(SKY)
    assert job["resources"] == {"nvidia.com/gpu": 8, "cpu": "32", "memory": "256G"}
    assert (job["gpu"], job["nodes"], job["retries"]) == ({"model": "H100"}, 2, {"max": 2})
    assert (job["image"], job["env"]) == ("registry.example.org/train:3", {"MODEL": "13b", "STEPS": "500"})
    assert sorted(loaded.unkept) == ["envs.TOKEN", "workdir"]
    notes = [note.removeprefix("task.yaml: ") for note in loaded.notes]
    assert "read as a task of SkyPilot; its job file here: --dry-run -o yaml" in notes
    assert {"resources.infra is not followed", "resources.use_spot is not followed"} <= set(notes)


def test_a_task_of_dstack_is_taken() -> None:
    """Its GPUs, times, volumes and commands."""
    job, loaded = load(DSTACK)
    assert job["resources"] == {"nvidia.com/gpu": 8, "cpu": "16", "memory": "128G", "shm": "16G"}
    assert (job["gpu"], job["time"], job["retries"]) == ({"model": ["A100", "H100"]}, {"total": "72h"}, {"max": 3})
    assert job["volumes"] == [{"name": "datasets", "mountPath": "/data"}]
    assert list(loaded.unkept) == ["env.HF_TOKEN"]
    assert job["command"][:2] == ["sh", "-ec"]


@pytest.mark.parametrize(
    ("words", "gpus", "gpu"),
    [
        ("8", 8, None),
        ("24GB", 1, {"memory": "24G"}),
        ("24GB..:1..2", 1, {"memory": "24G"}),
        ("nvidia:H100:80GB:4", 4, {"model": "H100", "memory": "80G"}),
        ("{name: [A100, L40S], count: 2, memory: 40GB..}", 2, {"model": ["A100", "L40S"], "memory": "40G"}),
    ],
)
def test_gpus_of_dstack(words: str, gpus: int, gpu: dict[str, Any] | None) -> None:
    """Models, memory and count in its own order; of a range the fewest."""
    job, _ = load(f"type: task\ncommands: [x]\nresources: {{gpu: {words}}}\n")
    assert (job["resources"]["nvidia.com/gpu"], job.get("gpu")) == (gpus, gpu)


def run(command: list[str]) -> str:
    """Run a command on the second of two nodes."""
    env = {"PATH": os.environ["PATH"], "NODE_RANK": "1", "NNODES": "2", "GPUS_PER_NODE": "8", "MASTER_ADDR": "10.0.0.1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout


def test_their_variables_are_set() -> None:
    """Those that the lines use; a failing line ends dstack's commands and SkyPilot's setup."""
    sky, _ = load(
        "setup: echo set up\nrun: |\n  false\n  echo $SKYPILOT_NODE_RANK/$SKYPILOT_NUM_NODES $SKYPILOT_NODE_IPS\n"
    )
    assert run(sky["command"]) == "set up\n1/2 127.0.0.1\n"
    dstack, _ = load(
        "type: task\ncommands:\n  - echo $DSTACK_GPUS_NUM $DSTACK_MASTER_NODE_IP\n  - 'false'\n  - echo no\n"
    )
    assert run(dstack["command"]) == "16 10.0.0.1\n"
    broken, _ = load("setup: |\n  false\n  echo no\nrun: echo no\n")
    assert run(broken["command"]) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type: fleet\nname: f\n", "found fleet"),
        ("type: dev-environment\nide: vscode\n", "found dev-environment"),
        ("type: task\n", "commands: expected commands, found none"),
        ("resources: {accelerators: A100}\n", "run: expected commands, found none"),
        ("type: task\ncommands: 5\n", "expected a valid task of dstack"),
        ("run: x\nenvs: 7\n", "expected a valid task of SkyPilot"),
    ],
)
def test_what_is_no_task_is_refused(text: str, expected: str) -> None:
    """In words, with what was found."""
    with pytest.raises(InputRefused, match=expected):
        reader.load(text, name="task.yaml")


@pytest.mark.parametrize(
    ("line", "unkept"),
    [
        ("run: x\nfile_mounts: {/data: s3://bucket}", "file_mounts./data"),
        ("run: x\nsecrets: {HF_TOKEN: abc}", "secrets.HF_TOKEN"),
        ("run: x\nresources: {any_of: [{accelerators: A100}, {accelerators: H100}]}", "resources.any_of"),
        ("run: x\nresources: {instance_type: p4d.24xlarge}", "resources.instance_type"),
        ("type: task\ncommands: [x]\nvolumes: [/srv/data:/data]", "volumes./srv/data"),
        ("type: task\ncommands: [x]\nrepos: [.]", "repos"),
        ("type: service\nport: 8000\ncommands: [x]", "type"),
        ("type: task\ncommands: [x]\npython: 3.12", "python"),
    ],
)
def test_what_cannot_be_kept_is_named(line: str, unkept: str) -> None:
    """Each by its path, for --ignore."""
    assert unkept in load(line)[1].unkept


def test_mistakes_have_the_lines_of_the_task() -> None:
    """And its own words."""
    loaded = reader.load("type: task\ncommands: [x]\nnodes: many\n", name="task.yaml")
    with pytest.raises(InputRefused, match=r"task.yaml line 3: nodes: expected a number"):
        reader.check_all(loaded.jobs)


def test_a_job_file_stays_one() -> None:
    """Whatever other words it has."""
    assert dict(reader.load("command: [x]\nrun: y\n", name="job.yaml").jobs[0]) == {"command": ["x"], "run": "y"}


@pytest.mark.parametrize(
    ("words", "gpu"),
    [
        ("A100-80GB:4", {"model": "A100", "memory": "80G"}),
        ("[V100-32GB, A100-80GB]", {"model": ["V100", "A100"], "memory": "32G"}),
        ("[A100-80GB, H100]", {"model": ["A100", "H100"]}),
        ("{L40S: 2}", {"model": "L40S"}),
    ],
)
def test_a_name_with_its_memory_is_a_model_and_a_size(words: str, gpu: dict[str, Any]) -> None:
    """As SkyPilot's catalogue has it; no product is called so. Of several the least memory, where each has one."""
    job, _ = load(f"run: x\nresources: {{accelerators: {words}}}\n")
    assert job["gpu"] == gpu


@pytest.mark.parametrize("kind", ["[]", "{}", "null", "3"])
def test_a_type_that_is_no_text_makes_no_task(kind: str) -> None:
    """It is read as a job file, whose mistakes are named."""
    loaded = reader.load(f"type: {kind}\ncommands: ['true']\n", name="f.yaml")
    with pytest.raises(InputRefused, match="type: unknown field"):
        reader.check_all(loaded.jobs)
