"""The rules of requests, for commands that no job file was read for."""

from typing import Any

import pytest

from fairlead_schemas.wire.resource_requests import faults
from fairlead_schemas.wire.resources import Request


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": 4097}, "nodes"),
        ({"cpu_milli": -1}, "resources.cpu"),
        ({"memory_mib": -1}, "resources.memory"),
        ({"shm_mib": 1}, "resources.shm"),
        ({"gpu_milli": 1500}, "resources.nvidia.com/gpu"),
        ({"gpu_milli": -1000}, "resources.nvidia.com/gpu"),
        ({"gpu_milli": 500, "gpu_parts": 2}, "resources.nvidia.com/gpu"),
        ({"gpu_milli": 2000, "gpu_parts": 1}, "resources.nvidia.com/gpu"),
        ({"gpu_milli": 1000, "profile": "3g.20gb"}, "resources.nvidia.com/mig-3g.20gb"),
        ({"gpu_milli": 100, "gpu_parts": 1, "profile": "3g.20gb"}, "resources.nvidia.com/mig-3g.20gb"),
        ({"gpu_parts": 1, "profile": "big"}, "resources.nvidia.com/mig-big"),
        ({"gpu_milli": 2000, "gpu_parts": 1, "replicas": True}, "resources.nvidia.com/gpu.shared"),
        ({"replicas": True}, "resources.nvidia.com/gpu.shared"),
        ({"nodes": 2, "nodes_min": 2}, "nodes"),
        ({"nodes": 2, "nodes_min": -1}, "nodes"),
        ({"nodes": 4, "nodes_min": 2, "tasks": True}, "tasks"),
        ({"selector": ("b=1", "a=1")}, "nodeSelector"),
        ({"selector": ("a = 1",)}, "nodeSelector"),
        ({"selector": ("a in (",)}, "nodeSelector"),
        ({"selector": tuple(f"k{n:03}={'v' * 100}" for n in range(100))}, "nodeSelector"),
        ({"tolerations": ("a", "a")}, "tolerations"),
        ({"require": ("shelf",)}, "topology.require"),
        ({"prefer": ("rack", "numa")}, "topology.prefer"),
        ({"packing": "best"}, "placement"),
        ({"nics": -1}, "resources.rdma/hca"),
        ({"also": (Request(nodes=1, exclusive=True),)}, "groups[0]"),
        ({"also": (Request(nodes=1, also=(Request(),)),)}, "groups[0]"),
        ({"also": (Request(nodes=1, pool="a100"),)}, "groups[0]"),
        ({"tasks": True, "also": (Request(),)}, "groups"),
    ],
    ids=repr,
)
def test_a_request_that_fits_nowhere_is_refused_by_field(fields: dict[str, Any], field: str) -> None:
    """One fault, at the job file's name for it."""
    assert [fault.field for fault in faults(Request(**fields))] == [field]


def test_a_request_of_an_older_log_is_still_valid() -> None:
    """Logs contain such requests."""
    assert (
        list(faults(Request(nodes=2, gpu_milli=8000, cpu_milli=1, memory_mib=1, pool="a100", selector=("a=b",)))) == []
    )
