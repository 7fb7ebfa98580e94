"""Request fields of a job file: units, kinds of GPUs, labels, taints, topology."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_schemas.http.json_schema import document
from fairlead_schemas.jobfile.job_spec import job_from
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.units.hardware import TOPOLOGY_LEVELS
from fairlead_schemas.units.validation import InvalidJob
from fairlead_schemas.wire.resource_requests import faults, gpu_count
from fairlead_schemas.wire.resources import Request

GPU, SHARED, MIG, PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-", "nvidia.com/gpu.product"
PLAIN: dict[str, Any] = {"cpu_milli": 1000, "memory_mib": 1024}


def asks(**words: Any) -> Request:
    """The request of a job file with these words."""
    return resolve(job_from({"command": ["true"], **words}), command_id="c1", user="ada").request


def errors(**words: Any) -> list[tuple[str, str]]:
    """(field, message) of each thing wrong with them."""
    with pytest.raises(InvalidJob) as caught:
        asks(**words)
    return [(error.field, error.message) for error in caught.value.errors]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({GPU: 8}, {"gpu_milli": 8000}),
        ({GPU: 0}, {}),
        ({GPU: "2.0"}, {"gpu_milli": 2000}),
        ({GPU: "1000m"}, {"gpu_milli": 1000}),
        ({GPU: "0.5"}, {"gpu_milli": 500, "gpu_parts": 1}),
        ({GPU: "500m"}, {"gpu_milli": 500, "gpu_parts": 1}),
        ({GPU: "0.125"}, {"gpu_milli": 125, "gpu_parts": 1}),
        ({f"{MIG}3g.20gb": 2}, {"gpu_milli": 858, "gpu_parts": 2, "profile": "3g.20gb"}),
        ({f"{MIG}7g.80gb": 1}, {"gpu_milli": 1000, "gpu_parts": 1, "profile": "7g.80gb"}),
        ({f"{MIG}1g.5gb.me": 1}, {"gpu_milli": 143, "gpu_parts": 1, "profile": "1g.5gb+me"}),
        ({f"{MIG}1g.5gb+me": 1}, {"gpu_milli": 143, "gpu_parts": 1, "profile": "1g.5gb+me"}),
        ({f"{MIG}2g.12gb": 1}, {"gpu_milli": 500, "gpu_parts": 1, "profile": "2g.12gb"}),
        ({f"{MIG}3g.20gb": 0}, {}),
        ({SHARED: 1}, {"gpu_parts": 1, "replicas": True}),
        ({SHARED: "3"}, {"gpu_parts": 3, "replicas": True}),
        ({SHARED: 0}, {}),
        ({"rdma/hca": 2}, {"nics": 2}),
    ],
    ids=repr,
)
def test_gpus_are_whole_or_parts_of_one_kind(resources: dict[str, Any], expected: dict[str, Any]) -> None:
    """Whole ones, a share of one, MIG instances by both spellings, replicas, network devices."""
    assert asks(resources=resources) == Request(**{**PLAIN, **expected})


@pytest.mark.parametrize(
    ("resources", "field", "says"),
    [
        ({GPU: "1.5"}, GPU, "a share is of one GPU"),
        ({GPU: "0.0001"}, GPU, "expected whole GPUs such as 8, or a share of one"),
        ({GPU: "1500m"}, GPU, 'found "1500m"'),
        ({GPU: "half"}, GPU, "expected a whole number of GPUs"),
        ({GPU: -1}, GPU, "expected a whole number of GPUs"),
        ({GPU: 65}, GPU, "expected at most 64 per node, found 65"),
        ({SHARED: "0.5"}, SHARED, "expected a whole number of GPUs"),
        ({f"{MIG}3g": 1}, f"{MIG}3g", "expected a profile such as nvidia.com/mig-3g.20gb"),
        ({f"{MIG}8g.20gb": 1}, f"{MIG}8g.20gb", "expected a profile"),
        ({f"{MIG}3g.20gb": 65}, f"{MIG}3g.20gb", "expected at most 64 per node, found 65"),
        ({f"{MIG}3g.20gb": "0.5"}, f"{MIG}3g.20gb", "expected a whole number"),
        ({GPU: 1, f"{MIG}3g.20gb": 1}, f"{MIG}3g.20gb", "expected one kind of GPU"),
        ({f"{MIG}1g.5gb": 1, f"{MIG}3g.20gb": 1}, f"{MIG}3g.20gb", "expected one kind of GPU"),
        (
            {"amd.com/gpu": 1},
            "amd.com/gpu",
            "expected one of nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-<profile>",
        ),
        ({"rdma/hca": "x"}, "rdma/hca", "expected a whole number"),
        ({"rdma/hca": 65}, "rdma/hca", "expected 0 to 64, found 65"),
    ],
    ids=repr,
)
def test_a_bad_amount_is_named_with_what_was_expected(resources: dict[str, Any], field: str, says: str) -> None:
    """One error, at the resource."""
    [(found, message)] = errors(resources=resources)
    assert found == f"resources.{field}"
    assert says in message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"model": "NVIDIA-A100-SXM4-80GB"}, [f"{PRODUCT}=NVIDIA-A100-SXM4-80GB"]),
        ({"model": "A100"}, [f"{PRODUCT}~A100"]),
        ({"model": ["H100", "A100"]}, [f"{PRODUCT}~A100|H100"]),
        ({"model": ["NVIDIA-L40S", "NVIDIA-L4"]}, [f"{PRODUCT} in (NVIDIA-L4,NVIDIA-L40S)"]),
        ({"model": ["NVIDIA-L40S", "A100"]}, [f"{PRODUCT}~A100|NVIDIA-L40S"]),
        ({"ecc": True}, ["fairlead/ecc=on"]),
        ({"ecc": False}, []),
        ({"driver": ">=550.54"}, ["nvidia.com/cuda.driver-version.full>=550.54"]),
        ({"driver": "550"}, ["nvidia.com/cuda.driver-version.full>=550"]),
        ({"cuda": "< 13"}, ["nvidia.com/cuda.runtime-version.full<13"]),
        ({"cuda": ">=12.4", "model": "H100"}, ["nvidia.com/cuda.runtime-version.full>=12.4", f"{PRODUCT}~H100"]),
    ],
    ids=repr,
)
def test_requirements_of_a_gpu_are_matched_by_labels(words: dict[str, Any], expected: list[str]) -> None:
    """Full product names as in quotas of a model, parts of names, versions."""
    assert asks(gpu=words).selector == tuple(expected)


def test_labels_are_collected_from_every_field_for_them() -> None:
    """In one order, each once."""
    found = asks(
        nodeSelector={"zone": "b", PRODUCT: "NVIDIA-L4"},
        nodeAffinity=["zone in (b, a)", "!spot", "zone = b"],
        gpu={"model": "NVIDIA-L4"},
    )
    assert found.selector == ("!spot", f"{PRODUCT}=NVIDIA-L4", "zone in (a,b)", "zone=b")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"nodes": 4}, {"nodes": 4}),
        ({"nodes": "4"}, {"nodes": 4}),
        ({"nodes": "2-8"}, {"nodes": 8, "nodes_min": 2}),
        ({"nodes": {"min": 2, "max": 8}}, {"nodes": 8, "nodes_min": 2}),
        ({"nodes": "8-8"}, {"nodes": 8}),
        ({"tasks": 16}, {"nodes": 16, "tasks": True}),
        ({"tasks": 16, "gpusPerTask": 1}, {"nodes": 16, "tasks": True, "gpu_milli": 1000}),
        ({"tasks": 4, "gpusPerTask": "0.5"}, {"nodes": 4, "tasks": True, "gpu_milli": 500, "gpu_parts": 1}),
        ({"exclusive": True}, {"exclusive": True}),
        ({"placement": "spread"}, {"packing": "spread"}),
        ({"topology": {"require": "rack"}}, {"require": ("rack",)}),
        (
            {"topology": {"require": ["rack", "numa"], "prefer": "node"}},
            {"require": ("numa", "rack"), "prefer": ("node",)},
        ),
        ({"tolerations": ["b", "a=1:NoSchedule", "b"]}, {"tolerations": ("a=1:NoSchedule", "b")}),
        ({"tolerations": [{"key": "a", "value": "1", "effect": "NoSchedule"}]}, {"tolerations": ("a=1:NoSchedule",)}),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}]},
            {"tolerations": ("a:NoExecute",)},
        ),
        ({"tolerations": [{"key": "a", "operator": "Exists"}, {"operator": "Exists"}]}, {"tolerations": (":", "a")}),
        ({"tolerations": [{"key": "a", "operator": "Equal"}]}, {"tolerations": ("a=",)}),
    ],
    ids=repr,
)
def test_units_and_places(words: dict[str, Any], expected: dict[str, Any]) -> None:
    """Gangs, elastic gangs, tasks, whole nodes, topology, tolerations."""
    assert asks(**words) == Request(**{**PLAIN, **expected})


def test_groups_are_kinds_of_their_own() -> None:
    """The top level is the first kind; each has its own amounts, GPUs and labels, and the defaults where it says nothing."""
    found = asks(
        nodes=2,
        resources={GPU: 8, "cpu": "32"},
        gpu={"model": "H100"},
        topology={"require": "block"},
        groups=[
            {"nodes": 4, "resources": {f"{MIG}1g.5gb": 1}, "nodeSelector": {"zone": "b"}},
            {"nodeAffinity": ["!gpu"]},
        ],
    )
    assert found == Request(
        nodes=2,
        gpu_milli=8000,
        cpu_milli=32000,
        memory_mib=1024,
        selector=(f"{PRODUCT}~H100",),
        require=("block",),
        also=(
            Request(nodes=4, gpu_milli=143, gpu_parts=1, profile="1g.5gb", selector=("zone=b",), **PLAIN),
            Request(nodes=1, selector=("!gpu",), **PLAIN),
        ),
    )
    assert (found.units, found.gpu_milli_total) == (7, 16000 + 4 * 143)


@pytest.mark.parametrize(
    ("words", "field", "says"),
    [
        ({"nodes": "many"}, "nodes", 'expected a number such as 4 or a range such as "2-8", found "many"'),
        ({"nodes": "8-2"}, "nodes", 'found "8-2"'),
        ({"nodes": {"min": 0, "max": 2}}, "nodes", 'found "0-2"'),
        ({"nodes": "0-0"}, "nodes", 'found "0-0"'),
        ({"nodes": "2-5000"}, "nodes", "expected 1 to 4096, found 5000"),
        ({"tasks": 0}, "tasks", "expected 1 to 4096, found 0"),
        ({"tasks": 16, "nodes": 2}, "tasks", "expected nodes or tasks, found both (2 and 16)"),
        ({"gpusPerTask": 1}, "gpusPerTask", "expected tasks with it"),
        (
            {"tasks": 2, "gpusPerTask": 1, "resources": {GPU: 1}},
            "gpusPerTask",
            f"expected gpusPerTask or resources.{GPU}",
        ),
        ({"tasks": 2, "gpusPerTask": "x"}, "gpusPerTask", "expected a whole number of GPUs"),
        ({"tasks": 2, "groups": [{}]}, "groups", "found tasks with groups"),
        ({"groups": [{}] * 8}, "groups", "expected at most 7, found 8"),
        ({"groups": [{}, {"nodes": 0}]}, "groups[1].nodes", "expected 1 to 4096, found 0"),
        ({"groups": [{"resources": {GPU: "x"}}]}, f"groups[0].resources.{GPU}", "expected a whole number"),
        (
            {"groups": [{"gpu": {"driver": "new"}}]},
            "groups[0].gpu.driver",
            'expected a version such as ">=550.54", found "new"',
        ),
        ({"gpu": {"cuda": ">=x"}}, "gpu.cuda", 'found ">=x"'),
        ({"gpu": {"model": ["A100", ""]}}, "gpu.model", "expected a model such as"),
        ({"gpu": {"model": []}}, "gpu.model", "expected a model such as"),
        ({"gpu": {"model": "A100|H100"}}, "gpu.model", "expected a model such as"),
        ({"nodeAffinity": ["zone=a", "zone in ()"]}, "nodeAffinity[1]", "expected 1 to 256 values"),
        ({"nodeSelector": {"k~": "v"}}, "nodeSelector", 'expected a label such as "fairlead/rack: r1", found "k~: v"'),
        (
            {"tolerations": ["a:Never"]},
            "tolerations[0]",
            'expected an effect of NoSchedule, PreferNoSchedule, NoExecute, found "Never"',
        ),
        (
            {"tolerations": ["a", {"key": "a", "operator": "In"}]},
            "tolerations[1]",
            'expected operator Equal or Exists, found "In"',
        ),
        ({"tolerations": [{"value": "x"}]}, "tolerations[0]", "expected a key"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}, "tolerations[0]", "expected no value"),
        (
            {"topology": {"require": "shelf"}},
            "topology.require",
            f'expected one of {", ".join(TOPOLOGY_LEVELS)}, found "shelf"',
        ),
        ({"topology": {"prefer": ["rack", ""]}}, "topology.prefer", 'found ""'),
        ({"placement": "best"}, "placement", 'expected pack or spread, found "best"'),
        ({"nodes": 4096, "resources": {GPU: 8}}, "nodes", "expected a gang that one event can name"),
    ],
    ids=repr,
)
def test_an_invalid_value_is_named_with_the_expected_and_the_found_one(
    words: dict[str, Any], field: str, says: str
) -> None:
    """One error, at the field."""
    [(found, message)] = errors(**words)
    assert found == field
    assert says in message


_COUNTS = st.integers(-1, 70) | st.sampled_from(["1", "0.5", "250m", "1.5", "x", ""])
_LABELS = st.dictionaries(
    st.sampled_from(["a", "b/c", "x~", "", "k="]), st.sampled_from(["", "v", " v", "=v", "v|w"]), max_size=2
)
_TEXTS = st.lists(
    st.sampled_from(["a=1", "a in (x,y)", "!a", "a>=1.2", "a~B|C", "a ~ b", "a in ()", "", "a:NoSchedule", ":", "b"]),
    max_size=3,
)
_RESOURCES = st.dictionaries(
    st.sampled_from([GPU, SHARED, f"{MIG}3g.20gb", f"{MIG}1g.5gb.me", f"{MIG}x", "cpu", "memory", "shm", "rdma/hca"]),
    _COUNTS | st.sampled_from(["8", "64Gi", "128Gi"]),
    max_size=3,
)
_MODELS = st.sampled_from(["A100", "NVIDIA-L4", "NVIDIA-H100-PCIe", "", "a|b"])
_GPUS = st.fixed_dictionaries(
    {},
    optional={
        "model": _MODELS | st.lists(_MODELS, max_size=3), "memory": st.sampled_from(["40Gi", "x", 0]), "ecc": st.booleans(),
        "computeCapability": st.sampled_from(["", ">=8.0", "8"]), "driver": st.sampled_from(["", "550", ">=550.54", "x"]),
        "cuda": st.sampled_from(["", "<13", "=12.4"]),
    },
)  # fmt: skip
_LEVELS = st.sampled_from([*TOPOLOGY_LEVELS, "", "shelf"]) | st.lists(
    st.sampled_from([*TOPOLOGY_LEVELS, "shelf"]), max_size=3
)
_GROUP = {"resources": _RESOURCES, "gpu": _GPUS, "nodeSelector": _LABELS, "nodeAffinity": _TEXTS}
_JOBS = st.fixed_dictionaries(
    {"command": st.just(["true"])},
    optional={
        **_GROUP,
        "nodes": st.integers(0, 5000)
        | st.sampled_from(["2-8", "8-2", "3", {"min": 1, "max": 3}, {"min": 3, "max": 1}]),
        "tasks": st.integers(0, 5000),
        "gpusPerTask": _COUNTS,
        "tolerations": st.lists(
            st.sampled_from(["a", "a=1:NoSchedule", ":", {"key": "a"}, {"operator": "Exists"}]), max_size=3
        ),
        "topology": st.fixed_dictionaries({}, optional={"require": _LEVELS, "prefer": _LEVELS}),
        "exclusive": st.booleans(),
        "placement": st.sampled_from(["", "pack", "spread", "best"]),
        "groups": st.lists(st.fixed_dictionaries({"nodes": st.integers(0, 3)}, optional=_GROUP), max_size=2),
    },
)


@settings(max_examples=300)
@given(_JOBS)
def test_an_accepted_request_is_accepted_by_the_queue(job: dict[str, Any]) -> None:
    """The same fields give the same request; a refused one is reported with the expected value."""
    spec = job_from(job)
    try:
        request = resolve(spec, command_id="c1", user="ada").request
    except InvalidJob as refused:
        said = [each.message for each in refused.errors]
    else:
        said = []
        check(request)
        assert hash(request) == hash(resolve(spec, command_id="c2", user="bob").request)
    assert all(message.startswith(("expected", "unknown resource; expected")) for message in said)


def check(request: Request) -> None:
    """Its rules hold, its parts are of one kind, and it survives its bytes."""
    assert faults(request) == ()
    assert msgspec.json.decode(msgspec.json.encode(request), type=Request) == request
    for kind in request.kinds:
        assert gpu_count(kind) * 1000 >= kind.gpu_milli
        assert bool(kind.gpu_parts) == bool(kind.profile or kind.replicas or 0 < kind.gpu_milli < 1000)


def test_the_schema_of_a_job_file_shows_every_field() -> None:
    """Editors complete from it."""
    schema = document("job")
    words = schema["$defs"]["JobSpec"]["properties"]
    assert {
        "tasks",
        "gpusPerTask",
        "groups",
        "topology",
        "tolerations",
        "nodeAffinity",
        "exclusive",
        "placement",
    } <= set(words)
    assert {"model", "ecc", "driver", "cuda"} <= set(schema["$defs"]["GpuWanted"]["properties"])
    assert words["placement"]["enum"] == ["", "pack", "spread"]
