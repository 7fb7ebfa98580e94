"""Containers: hostile job files against a real Docker engine, and ways out tried from inside. Start at `containers`.

Every job must end and give its GPUs back, cancel must work, and every container must be the template's, whatever its job
file says. Skipped with the reason where no engine answers.
"""

import json
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import docker.errors

from fairlead.client import Client
from fairlead.errors import FairleadError, InputRefused
from fairlead_schemas.wire.lifecycle import END_STATES
from tests.agent.runtimes.docker.hostile_jobs import ALWAYS
from tests.conftest import no_docker
from tests.hostile.outcome import Row, row
from tests.hostile.stack import Stack

ENDED_S = 150.0
CANARIES = Path(__file__).parents[1] / "agent" / "runtimes" / "docker" / "canaries.py"
SMALL = {"resources": {"nvidia.com/gpu": 1, "cpu": "100m", "memory": "64Mi"}, "time": {"total": "30s", "grace": "1s"}}
NEVER = ("Binds", "CapAdd", "Devices", "DeviceRequests", "VolumesFrom", "PidMode", "UsernsMode")
#: Refused at submit: no references of images, or of a registry that no list has.
NO_IMAGES = (
    "/",
    ".",
    "//",
    "../containers",
    "../images",
    "a b",
    "x\ny",
    "-x",
    "A/B",
    "x:y:z",
    "x@sha256:0",
    "?a=b",
    "a/../b",
)
#: References of images that nobody can get.
NOT_TO_BE_HAD = (
    "fairlead-no-such:1",
    "registry.invalid/x/y:1",
    "127.0.0.1:9/x/y:z",
    "localhost:9/a:b",
    "169.254.169.254/latest/meta-data:x",
)
#: {field: value} beside an image that is there.
FIELDS: tuple[dict[str, Any], ...] = (
    {"volumes": ["datasets:/data"]}, {"volumes": [{"name": "x", "mountPath": "/proc", "create": True}]},
    {"volumes": [{"name": "x", "mountPath": "/", "create": True}]}, {"volumes": [{"name": "x", "mountPath": "/var/run/docker.sock", "create": True}]},
    {"project": "../vision", "volumes": [{"name": "x", "mountPath": "/x", "create": True}]},
    {"project": "vision", "volumes": [{"name": "../../etc", "mountPath": "/x", "create": True}]}, {"project": "vision", "secrets": ["hf-token"]},
    {"secrets": ["../../../etc/shadow"]}, {"secrets": [{"name": "a", "mountPath": "/etc/passwd"}]},
    {"env": {"LD_PRELOAD": "/x.so"}}, {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, {"env": {"NVIDIA_DRIVER_CAPABILITIES": "all"}},
    {"env": {"PATH": ""}}, {"env": {"LD_LIBRARY_PATH": "/proc/self/root"}}, {"workdir": "/proc/1/root"}, {"workdir": "/no/such/../../.."},
    {"command": ["/no/such/program"]}, {"command": ["", ""]}, {"command": ["sh", "-c", "kill -9 1"]}, {"command": ["sh", "-c", "kill -9 -1"]},
    {"command": ["sh", "-c", "i=0; while [ $i -lt 4500 ]; do sleep 9 & i=$((i+1)); done; wait"]},
    {"command": ["sh", "-c", "cat /dev/zero"]}, {"command": ["sh", "-c", "while :; do :; done & trap '' TERM; while :; do sleep 1; done"]},
    {"command": ["sh", "-c", "x=a; while :; do x=$x$x; done"]},
)  # fmt: skip


def containers(directory: Path, tries: int, seed: int) -> list[Row]:
    """Go through the lists `tries` times against one stack."""
    if unfit := no_docker():
        return [row("containers", f"skipped: {unfit}", 0, [])]
    stack, rows = Stack(directory / "containers", nodes=1), list[Row]()
    try:
        stack.up("--runtime", "docker")
        before = stack.pids()
        with stack.client() as client:
            for number in range(tries):
                rng = random.Random(f"{seed} {number}")
                rows += [_images(client, rng), _fields(client, rng), _inside(client, directory), _cancel(stack, client)]
            free = _ended(
                client,
                _submitted(client, {"image": _busybox(), "command": ["true"], "resources": {"nvidia.com/gpu": 8}}),
            )
        again = [f"{name} was started again" for name, pid in before.items() if stack.pids().get(name) != pid]
        afterwards = [*again, *([] if free == "succeeded" else [f"a job with all 8 GPUs is {free}"])]
        stack.down()
        return [*rows, row("containers", "all GPUs free afterwards, no part started again", 1, afterwards)]
    finally:
        stack.end()


def _busybox() -> str:
    from tests.agent.runtimes.docker.image import ensure_image  # needs an engine

    return ensure_image()


def _submitted(client: Client, job: dict[str, Any]) -> str:
    """Submit a job; return its id, or "" where it was refused by its fields."""
    try:
        return client.submit(job).id or ""
    except InputRefused:
        return ""


def _ended(client: Client, job: str) -> str:
    """Wait for a job's end; return its state, or "open"."""
    try:
        return client.wait([job], timeout_s=ENDED_S)[0].state
    except FairleadError:
        return "open"


def _images(client: Client, rng: random.Random) -> Row:
    """Name no images, and images that nobody can get, with all GPUs of the node."""
    gpus, broken = {"resources": {"nvidia.com/gpu": 8}, "time": {"total": "20s"}}, list[str]()
    for name in rng.sample(NO_IMAGES, len(NO_IMAGES)):
        if job := _submitted(client, {"image": name, "command": ["id"], **gpus}):
            broken.append(f"image {name!r}: accepted as job {job}")
    for name in rng.sample(NOT_TO_BE_HAD, len(NOT_TO_BE_HAD)):
        if job := _submitted(client, {"image": name, "command": ["id"], **gpus}):
            with suppress(FairleadError):  # a pull is tried again for a while; it must be possible to end it
                client.wait([job], timeout_s=3)
            if client.job(job).state not in END_STATES:
                client.cancel(job)
            if (state := _ended(client, job)) not in ("failed", "cancelled"):
                broken.append(f"image {name!r}: job {job} is {state}")
    return row(
        "containers",
        "image names: paths, garbage, registries of the node's own network",
        len(NO_IMAGES) + len(NOT_TO_BE_HAD),
        broken,
    )


def _fields(client: Client, rng: random.Random) -> Row:
    """Ask for mounts, secrets, variables and behaviour that no job gets; inspect every container that is made."""
    broken, jobs = list[str](), dict[str, dict[str, Any]]()
    for fields in rng.sample(FIELDS, len(FIELDS)):
        if job := _submitted(client, {"image": _busybox(), "command": ["sh", "-c", "sleep 0.5"], **SMALL, **fields}):
            jobs[job] = fields
    engine, deadline, open_jobs = docker.APIClient(version="auto"), time.monotonic() + ENDED_S, set(jobs)
    while open_jobs and time.monotonic() < deadline:
        for job in sorted(open_jobs):
            broken += _strange(engine, job)
            if client.job(job).state in END_STATES:
                open_jobs.remove(job)
        time.sleep(0.2)
    broken += [f"job {job} has not ended: {jobs[job]}" for job in open_jobs]
    return row(
        "containers", "job files: mounts, sockets, projects, secrets, variables, forks, memory", len(FIELDS), broken
    )


def _strange(engine: docker.APIClient, job: str) -> list[str]:
    """Return how the containers of a job differ from the template."""
    found: list[str] = []
    for there in engine.containers(all=True, filters={"label": [f"fairlead.job={job}", "fairlead.node=sim-1"]}):
        with suppress(docker.errors.NotFound):
            made = engine.inspect_container(there["Id"])["HostConfig"]
            differs = [
                field
                for field, value in ALWAYS.items()
                if made[field] != value and field not in ("NetworkMode", "LogConfig")
            ]
            found += [
                f"job {job}: {field} is {made[field]}"
                for field in [*differs, *(name for name in NEVER if made.get(name))]
            ]
    return found


def _inside(client: Client, directory: Path) -> Row:
    """Try the ways out from inside: mounts, devices, namespaces, keys, kernel settings, the host's files."""
    from tests.agent.runtimes.docker.python_image import PYTHON, ensure_python_image  # needs an engine

    treasure = directory / "treasure"
    treasure.write_text("gold")
    words = [PYTHON, "-I", "-S", "-c", CANARIES.read_text(), str(treasure), str(os.getpid())]
    job = _submitted(client, {"image": ensure_python_image(), "command": words, "resources": {"memory": "256Mi"}})
    state = _ended(client, job)
    said = b"".join(client.logs(job))
    sung: dict[str, str] = json.loads(said) if state == "succeeded" else {}
    broken = [f"{way}: {reached}" for way, reached in sung.items() if reached]
    return row(
        "containers",
        "ways out, tried from inside",
        max(1, len(sung)),
        broken or ([] if sung else [f"{state}: {said[-200:]!r}"]),
    )


def _cancel(stack: Stack, client: Client) -> Row:
    """Cancel a container that ignores TERM."""
    script = "trap '' TERM; while :; do sleep 1; done"
    job = _submitted(client, {"image": _busybox(), "command": ["sh", "-c", script], **SMALL, "time": {"grace": "1s"}})
    stack.until(lambda: client.job(job).state == "running", "the container runs", ENDED_S)
    client.cancel(job)
    state = _ended(client, job)
    return row(
        "containers",
        "cancel of a container that ignores TERM",
        1,
        [] if state == "cancelled" else [f"job {job} is {state}"],
    )
