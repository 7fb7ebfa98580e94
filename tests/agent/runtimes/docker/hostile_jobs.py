"""Job files and orders that request more than they may have, and the fields that every container's HostConfig has all
the same."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from fairlead_agent.launch.plan import Launch, Program, plan
from fairlead_agent.runtimes.docker import template
from fairlead_schemas.jobfile.job_spec import RESERVED_ENV_PREFIXES
from fairlead_schemas.wire.desired import RunOrder
from tests.agent.runtime_watch import PLACE

WORDS = st.sampled_from(
    [
        "",
        "/",
        "..",
        "../..",
        "/data",
        "/proc",
        "/dev/mem",
        "/var/run/docker.sock",
        "host",
        "all",
        "0",
        "-1",
        "a=b",
        "\0",
        "name",
        "hf-token",
        "/data:ro",
        "datasets:/data",
        "x:/proc/1",
        "/run/nvidia-container-devices/all",
        "privileged",
    ]
)
TEXTS = WORDS | st.text(max_size=12)
ENV_NAMES = TEXTS | st.builds(lambda prefix, rest: prefix + rest, st.sampled_from(RESERVED_ENV_PREFIXES), TEXTS)
AMOUNTS = st.integers(-(2**40), 2**40) | st.sampled_from([0, 1, 5, 6, 64])
MOUNTS = TEXTS | st.fixed_dictionaries(
    {"name": TEXTS, "mountPath": TEXTS}, optional={"readOnly": st.booleans(), "create": st.booleans()}
)
PROGRAMS = st.fixed_dictionaries(
    {
        "command": st.lists(TEXTS, min_size=1, max_size=3),
        "image": TEXTS,
        "env": st.dictionaries(ENV_NAMES, TEXTS, max_size=4),
    },
    optional={
        "args": st.lists(TEXTS, max_size=2),
        "workdir": TEXTS,
        "project": TEXTS,
        "volumes": st.lists(MOUNTS, max_size=3),
        "secrets": st.lists(TEXTS, max_size=3),
    },
)
ORDERS = st.fixed_dictionaries(
    {"cpu_milli": AMOUNTS, "memory_mib": AMOUNTS, "shm_mib": AMOUNTS},
    optional={
        "cpus": TEXTS | st.sampled_from(["0-3", "4,5", "0-7"]),
        "nics": st.lists(TEXTS | st.just("mlx5_0"), max_size=2).map(tuple),
        "gpus": st.lists(st.sampled_from(["GPU-a", "GPU-b"]), unique=True).map(tuple),
    },
)
#: What may stand in a HostConfig, and where a job's order may have any say at all, what of it.
ALWAYS = {
    "Privileged": False,
    "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges"],
    "IpcMode": "private",
    "CgroupnsMode": "private",
    "PidsLimit": 4096,
    "OomScoreAdj": 500,
    "OomKillDisable": False,
    "ReadonlyRootfs": True,
    "LogConfig": template.LOG_CONFIG,
    "NetworkMode": "default",
    "Runtime": "runc",
    "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
    "Init": True,
}
BY_ORDER = {"Memory", "MemorySwap", "NanoCpus", "CpusetCpus", "CpusetMems", "Ulimits", "Tmpfs", "ShmSize", "Mounts"}


def launched(program: dict[str, Any], order: dict[str, Any], simulated: bool) -> Launch:
    """As the agent plans it; what it refuses is no launch."""
    run = RunOrder(job="7", attempt=1, rank=0, epoch=1, **order)
    return plan(run, msgspec.convert(program, Program), PLACE._replace(gpus_simulated=simulated))
