"""Settings of the agent process, from the environment. Start here to see what can be set.

FAIRLEAD_NODE       this node's id (a-z 0-9 _ -; default: made from the host's name)
FAIRLEAD_RUNTIME    process | docker (default process)
FAIRLEAD_DEVICES    simulated | nvml | none | auto (default auto: NVML where it works, else none)
FAIRLEAD_GPU_FREE_MIB  memory that may be in use on a free GPU (default 64; more where one drives a display)
FAIRLEAD_PROFILE    the machine to play with simulated devices (default dgx-a100)
FAIRLEAD_DATA       directory of the journal and of the runs' files (default ./.fairlead)
FAIRLEAD_ADDRESS    where other ranks of a gang reach this node (default 127.0.0.1)
FAIRLEAD_POOL       the pool that this node belongs to (default: none, which is the default pool)
FAIRLEAD_NODE_LABELS, FAIRLEAD_NODE_TAINTS  what else its admin says of it: admin.py (default none)
FAIRLEAD_BEAT_S     seconds between beats (default 2)
FAIRLEAD_SAMPLE_S   seconds between samples (default 2)
FAIRLEAD_SELF_FENCE_S  silence of the placer after which everything here is stopped (default 60)
"""

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

import msgspec

from fairlead_agent import admin
from fairlead_agent.admin import Admin
from fairlead_agent.reconcile import SECOND_NS
from fairlead_bus.settings import BadSetting, one_of, seconds, token, whole
from fairlead_schemas.ids import is_token

RuntimeName = Literal["process", "docker"]
DevicesName = Literal["simulated", "nvml", "none", "auto"]

_TAINT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?(?:=[A-Za-z0-9._-]{1,63})?:(?:NoSchedule|PreferNoSchedule|NoExecute)"
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the agent process can be told."""

    node: str
    runtime: RuntimeName = "process"
    devices: DevicesName = "auto"
    profile: str = "dgx-a100"
    gpu_free_mib: int = 64
    data: Path = Path(".fairlead")
    address: str = "127.0.0.1"
    pool: str = ""
    admin: Admin = Admin()
    beat_s: float = 2.0
    sample_s: float = 2.0
    desired_s: float = 5.0
    fence_ns: int = 60 * SECOND_NS

    @property
    def directory(self) -> Path:
        """Where this node's journal and run files lie."""
        return self.data / f"agent-{self.node}"


def from_environment(env: Mapping[str, str]) -> Settings:
    """Read and check. Raises BadSetting."""
    node = env.get("FAIRLEAD_NODE") or re.sub(r"[^a-z0-9_-]", "-", socket.gethostname().lower()).strip("-_")[:63]
    if not is_token(node):
        raise BadSetting(f'FAIRLEAD_NODE: expected 1 to 63 of a-z 0-9 _ -, found "{node}"')
    return Settings(
        node=node,
        runtime=cast(RuntimeName, one_of(env, "FAIRLEAD_RUNTIME", ("process", "docker"), "process")),
        devices=cast(DevicesName, one_of(env, "FAIRLEAD_DEVICES", ("simulated", "nvml", "none", "auto"), "auto")),
        profile=env.get("FAIRLEAD_PROFILE") or "dgx-a100",
        gpu_free_mib=whole(env, "FAIRLEAD_GPU_FREE_MIB", 64, unit="MiB", least=1, most=2**20),
        data=Path(env.get("FAIRLEAD_DATA") or ".fairlead").absolute(),
        address=env.get("FAIRLEAD_ADDRESS") or "127.0.0.1",
        pool=token(env, "FAIRLEAD_POOL"),
        admin=admin.from_environment(env),
        beat_s=seconds(env, "FAIRLEAD_BEAT_S", 2.0),
        sample_s=seconds(env, "FAIRLEAD_SAMPLE_S", 2.0),
        fence_ns=int(seconds(env, "FAIRLEAD_SELF_FENCE_S", 60.0) * SECOND_NS),
    )
