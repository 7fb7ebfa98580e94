"""NVIDIA's Multi-Process Service: where its daemon runs, the driver itself enforces the limits of shares of a GPU.

Without the daemon, processes take turns on the GPU (time slicing) and only the memory guard protects them from each
other. Not tried on a GPU yet; names and forms of the variables are those of NVIDIA's MPS documentation.
"""

import os
import stat
from collections.abc import Mapping

from fairlead_agent.devices.memory_guard import is_share
from fairlead_schemas.wire.desired import RunOrder

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
PIPE_DIRECTORY_DEFAULT = "/tmp/nvidia-mps"  # noqa: S108 -- where the daemon puts it
#: By which way a run shares its GPU: mps or time-slicing.
SHARING = "FAIRLEAD_GPU_SHARING"


def pipe_directory(env: Mapping[str, str]) -> str:
    """Return the directory of the daemon's control pipe; "" while no daemon runs."""
    directory = env.get(PIPE_DIRECTORY) or PIPE_DIRECTORY_DEFAULT
    try:
        return directory if stat.S_ISFIFO(os.stat(f"{directory}/control").st_mode) else ""  # noqa: PTH116 -- one call
    except OSError:
        return ""


def share_environment(order: RunOrder, pipes: str) -> dict[str, str]:
    """For a share: its part of the threads, its memory on each GPU that it sees (by CUDA's numbers, from 0); how it shares.
    Nothing for a whole GPU or a MIG instance."""
    if not is_share(order):
        return {}
    if not pipes:
        return {SHARING: "time-slicing"}
    return {
        SHARING: "mps",
        PIPE_DIRECTORY: pipes,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(max(1, order.gpu_milli // 10)),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ",".join(f"{n}={order.gpu_memory_mib}M" for n in range(len(order.gpus))),
    }
