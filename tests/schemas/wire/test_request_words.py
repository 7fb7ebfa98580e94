"""Requests in sentences."""

import pytest

from fairlead_schemas.wire.resource_requests import needs, size
from fairlead_schemas.wire.resources import Request

CPU = Request(cpu_milli=1000, memory_mib=2048)


@pytest.mark.parametrize(
    ("request_", "short", "long"),
    [
        (Request(gpu_milli=1000), "1 GPU", "1 GPU on one node"),
        (Request(nodes=2, gpu_milli=8000), "2 nodes x 8 GPUs", "8 GPUs on each of 2 nodes"),
        (CPU, "1 CPU", "1 CPU and 2Gi of memory on one node"),
        (Request(gpu_milli=500, gpu_parts=1), "0.500 GPUs", "0.500 GPUs on one node"),
        (Request(nodes=8, nodes_min=2, gpu_milli=1000), "2 to 8 nodes x 1 GPU", "1 GPU on each of 2 to 8 nodes"),
        (Request(nodes=16, tasks=True, gpu_milli=1000), "16 tasks x 1 GPU", "1 GPU for each of 16 tasks"),
        (
            Request(gpu_milli=858, gpu_parts=2, profile="3g.20gb"),
            "2 MIG instances 3g.20gb",
            "2 MIG instances 3g.20gb on one node",
        ),
        (Request(gpu_parts=1, replicas=True), "1 shared GPU", "1 shared GPU on one node"),
        (
            Request(nodes=2, gpu_milli=8000, also=(CPU,)),
            "2 nodes x 8 GPUs and 1 node x 1 CPU",
            "8 GPUs on each of 2 nodes and 1 CPU and 2Gi of memory on one node",
        ),
    ],
    ids=repr,
)
def test_a_request_has_a_readable_summary(request_: Request, short: str, long: str) -> None:
    """For lists, and for explanations."""
    assert (size(request_), needs(request_)) == (short, long)
