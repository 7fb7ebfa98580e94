"""Kubernetes files as they are: jobs of ten files are valid, are placed, and what is not followed of them is named."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.errors import InputRefused
from fairlead.jobfile import kubernetes_job, kubernetes_shapes, reader
from fairlead.jobfile.yaml_text import read_yaml
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.units.validation import joined
from tests.kit.placer_world import PlacerWorld

FILES = Path(__file__).parents[2] / "data" / "kubernetes"
#: {file: fields that need --ignore}
UNKEPT: dict[str, list[str]] = {
    "claims-and-affinity": ["volumes.settings"],
    "gpu-training": [],
    "indexed-array": [],
    "indexed-gang": [],
    "kueue": [],
    "mpijob": [],
    "pod": [],
    "pytorchjob": [],
    "rayjob": ["spec.runtimeEnvYAML"],
    "several": ["spec.template.spec.initContainers"],
}


def load(name: str) -> reader.Loaded:
    return reader.load((FILES / f"{name}.yaml").read_text(), name=f"{name}.yaml")


def job(name: str) -> dict[str, Any]:
    (found,) = load(name).jobs
    return dict(found)


def with_field(field: str, value: str) -> reader.Loaded:
    """Load a small Job with one more line in its pod."""
    lines = [
        "apiVersion: batch/v1",
        "kind: Job",
        "metadata: {name: a}",
        f"spec: {{template: {{spec: {{{field}: {value}, containers: [{{command: [x]}}]}}}}}}",
    ]
    return reader.load("\n".join(lines), name="a.yaml")


def test_the_files_are_those_of_the_table() -> None:
    """No file without an expectation."""
    assert sorted(path.stem for path in FILES.glob("*.yaml")) == sorted(UNKEPT)


@pytest.mark.parametrize("name", UNKEPT)
def test_a_file_runs_as_it_is(name: str) -> None:
    """Its jobs are valid and the placer places them at once; only fields of the table would have to be ignored."""
    loaded = load(name)
    assert sorted(loaded.unkept) == UNKEPT[name]
    for spec in reader.check_all(loaded.jobs):
        world = PlacerWorld()
        for node in ("n1", "n2", "n3", "n4"):
            labels = {"node-pool": "cpu", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
            world.join(node, labels=labels)
        request = resolve(spec, command_id="c", user="ann").request
        if request.profile or request.nics:  # nodes with MIG and RDMA are worlds of their own
            request = msgspec.structs.replace(request, profile="", gpu_parts=0, gpu_milli=1000, nics=0)
        assert "JobPlaced" in [type(event).__name__ for event in world.offer(request)]


def test_volumes_and_secrets_have_our_names() -> None:
    """Claims, host paths and keys of Secrets; memory at /dev/shm is shm."""
    training, claims = job("gpu-training"), job("claims-and-affinity")
    assert training["volumes"] == [{"name": "images", "mountPath": "/images", "readOnly": True}]
    assert (training["resources"]["shm"], training["secrets"], training["priority"]) == ("16Gi", ["wandb-api_key"], 75)
    assert training["gpu"] == {"model": "A100"}
    assert claims["volumes"] == [{"name": "datasets-v2", "mountPath": "/in", "readOnly": True}]
    assert claims["secrets"] == [{"name": "hub-token", "mountPath": "/etc/hub/hub-token"}]
    assert claims["nodeAffinity"] == ["node-pool in (cpu,mixed)", "!spot"]
    assert claims["env"] == {"THREADS": "16"}


def test_indexed_jobs_are_arrays_or_gangs() -> None:
    """A gang where the pods know each other by name; an array of the completions otherwise, parallelism at once."""
    assert job("indexed-array")["array"] == "0-5%2"
    gang = job("indexed-gang")
    assert (gang["nodes"], gang["launcher"], gang["resources"]["rdma/hca"]) == (2, "torchrun", 8)
    assert "MASTER_ADDR" not in gang["env"]


def test_operators_jobs_are_gangs() -> None:
    """Replicas are nodes; Ray's workers are groups of nodes; mpirun needs no host file."""
    torch, mpi, ray = job("pytorchjob"), job("mpijob"), job("rayjob")
    assert (torch["nodes"], torch["launcher"], torch["processesPerNode"]) == (4, "env", 1)
    assert (mpi["nodes"], mpi["launcher"], mpi["processesPerNode"]) == (2, "mpi", 4)
    assert mpi["command"] == [
        "mpirun",
        "--allow-run-as-root",
        "-np",
        "8",
        "-x",
        "NCCL_DEBUG",
        "all_reduce_perf",
        "-b",
        "8M",
        "-e",
        "1G",
    ]
    assert ray["groups"] == [{"nodes": 2, "resources": {"nvidia.com/gpu": 1, "cpu": "8", "memory": "16Gi"}}]


def test_a_suspended_job_is_held() -> None:
    """As Kubernetes keeps it from starting until a user resumes it."""
    assert [found.get("held") for found in load("several").jobs].count(True) == 1


def test_labels_of_kueue_are_followed() -> None:
    """Queue, priority class of the same file, time and topology; suspended is how Kueue's jobs are sent."""
    kueue = job("kueue")
    assert (kueue["queue"], kueue["priority"], kueue["time"]) == ("default", 30, {"total": "7200s"})
    assert (kueue["array"], kueue["topology"]) == (3, {"prefer": "rack"})
    assert "labels" not in kueue


def run(words: list[str], **env: str) -> str:
    """Run a command as a node would, and return its output."""
    return subprocess.run(
        words, env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True, check=True
    ).stdout


def test_the_index_is_set_before_the_command_starts() -> None:
    """In its environment and in its arguments, where Kubernetes expands $(NAME)."""
    found = job("indexed-array")
    printed = run(found["command"], FAIRLEAD_ARRAY_INDEX="4", **found["env"])
    assert printed == "harbour frame 4 of 40\n--start=4\n"


def test_quoting_survives_the_shell() -> None:
    """Words of the command are the program's own, whatever is in them."""
    words = ["'$HOME'", "a b", "$(JOB_COMPLETION_INDEX)'s", '"', "$$(JOB_COMPLETION_INDEX)", ""]
    text = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: a}}
spec:
  completionMode: Indexed
  completions: 2
  template: {{spec: {{containers: [{{command: [printf, "<%s>"], args: {msgspec.json.encode(words).decode()}}}]}}}}
"""
    (found,) = reader.load(text, name="a.yaml").jobs
    printed = run(found["command"], FAIRLEAD_ARRAY_INDEX="1")
    assert printed == """<'$HOME'><a b><1's><"><$(JOB_COMPLETION_INDEX)><>"""


@pytest.mark.parametrize(
    ("field", "value", "unkept", "why"),
    [
        ("priorityClassName", "gold", "spec.template.spec.priorityClassName", "--priority"),
        ("hostNetwork", "true", "spec.template.spec.hostNetwork", "not followed"),
        (
            "affinity",
            "{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{}]}}",
            "affinity.podAntiAffinity",
            "exclusive",
        ),
        (
            "affinity",
            "{podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}",
            "affinity.podAffinity",
            "rack",
        ),
        ("tolerations", "[{key: a, tolerationSeconds: 5}]", "spec.template.spec.tolerations", "not followed"),
    ],
)
def test_what_cannot_be_kept_says_what_to_do(field: str, value: str, unkept: str, why: str) -> None:
    """By its path, so that --ignore can name it."""
    assert why in with_field(field, value).unkept[unkept]


def test_every_document_that_is_no_job_is_named() -> None:
    """With its number, all of them at once."""
    text = "apiVersion: apps/v1\nkind: Deployment\n---\ncommand: [x]\n---\napiVersion: v2\nkind: Cron\n"
    with pytest.raises(InputRefused) as refused:
        reader.load(text, name="a.yaml")
    assert [line.strip()[:22] for line in str(refused.value).splitlines()] == [
        "document 1: expected a",
        "document 3: expected a",
    ]


def test_mistakes_have_the_paths_and_lines_of_the_object() -> None:
    """Not those of the job file that it became."""
    loaded = reader.load((FILES / "indexed-gang.yaml").read_text().replace("gpu: 8,", "gpu: many,"), name="g.yaml")
    with pytest.raises(InputRefused) as refused:
        reader.check_all(loaded.jobs)
    path = "spec.template.spec.containers[0].resources.limits.nvidia.com/gpu"
    assert f"g.yaml line 24: {path}: expected a whole number of GPUs" in str(refused.value)


@pytest.mark.parametrize(
    "broken", ["spec: 5", "spec: {template: []}", "metadata: 7\nspec: {template: {spec: {containers: [1]}}}"]
)
def test_values_of_a_wrong_kind_are_refused(broken: str) -> None:
    """In words, not with a traceback."""
    with pytest.raises(InputRefused, match="expected"):
        reader.load(f"apiVersion: batch/v1\nkind: Job\n{broken}\n", name="a.yaml")


def shaped(value: Any, shape: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (path, expected shape, the whole with another value at this path) of every value of an object that is read."""
    others = {
        "a list": {"x": 1},
        "a mapping": ["x"],
        kubernetes_shapes.VALUE: {"x": 1},
        kubernetes_shapes.NUMBER: "many",
    }
    expected = shape if isinstance(shape, str) else "a list" if isinstance(shape, list) else "a mapping"
    yield path, expected, others[expected]
    if isinstance(shape, list) and isinstance(value, list):
        for at, each in enumerate(value):
            for inside, wanted, found in shaped(each, shape[0], f"{path}[{at}]"):
                yield inside, wanted, [*value[:at], found, *value[at + 1 :]]
    elif isinstance(shape, dict) and isinstance(value, dict):
        for key, each in value.items():
            if (known := shape.get(key, shape.get("*"))) is not None and each is not None:
                for inside, wanted, found in shaped(each, known, joined(path, key)):
                    yield inside, wanted, {**value, key: found}


@pytest.mark.parametrize("name", UNKEPT)
def test_a_value_of_another_shape_is_named_with_its_path(name: str) -> None:
    """A list in place of a mapping and the reverse, in every field that is read of the ten files: that path and no other."""
    documents = read_yaml((FILES / f"{name}.yaml").read_text(), name)
    tried = 0
    for document in [each for one in documents for each in (one["items"] if one.get("kind") == "List" else [one])]:
        shape = kubernetes_shapes.SHAPES.get(document["kind"])
        if shape is None:
            continue
        assert kubernetes_shapes.mistakes(document) == []
        for path, expected, found in list(shaped(document, shape, ""))[1:]:
            (mistake,) = kubernetes_shapes.mistakes(found)
            assert (mistake.field, mistake.message.partition(", found")[0]) == (path, f"expected {expected}")
            tried += 1
    assert tried >= 12, "the files have that many fields"


def test_values_of_another_shape_are_all_named_with_their_lines() -> None:
    """Of every document at once."""
    text = """\
apiVersion: batch/v1
kind: Job
metadata: {name: a, labels: [x]}
spec:
  template:
    spec:
      tolerations: {key: a}
      containers:
        - command: python train.py
          env: {A: 1}
          resources: {limits: [8]}
---
apiVersion: v1
kind: ConfigMap
data: [x]
"""
    with pytest.raises(InputRefused) as refused:
        reader.load(text, name="a.yaml")
    assert str(refused.value).splitlines() == [
        "the file is not valid",
        "  a.yaml line 3: metadata.labels: expected a mapping, found a list",
        "  a.yaml line 7: spec.template.spec.tolerations: expected a list, found a mapping",
        '  a.yaml line 9: spec.template.spec.containers[0].command: expected a list, found a plain value: "python train.py"',
        "  a.yaml line 10: spec.template.spec.containers[0].env: expected a list, found a mapping",
        "  a.yaml line 11: spec.template.spec.containers[0].resources.limits: expected a mapping, found a list",
        "  a.yaml line 15: data: expected a mapping, found a list",
    ]


def test_objects_of_a_list_are_looked_at_too() -> None:
    """By their place in it; an element that is no object is named as well."""
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": {"command": ["x"]}}}
    found = kubernetes_shapes.mistakes({"apiVersion": "v1", "kind": "List", "items": [pod, 7]})
    assert [each.field for each in found] == ["items[0].spec.containers", "items[1]"]


def replaced(value: Any, other: Any) -> Iterator[Any]:
    """Yield copies of plain values, each with one part replaced."""
    yield other
    if isinstance(value, dict):
        for key, one in value.items():
            yield from ({**value, key: found} for found in replaced(one, other))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from ([*value[:index], found, *value[index + 1 :]] for found in replaced(one, other))


@pytest.mark.parametrize("name", UNKEPT)
def test_no_value_of_a_file_breaks_the_reader(name: str) -> None:
    """Any part of it may be something else: the file is read, or refused in words."""
    documents = read_yaml((FILES / f"{name}.yaml").read_text(), name)
    for other in (5, "x", [], {}, None, [{}], {"x": [1]}):
        for found in replaced(documents, other):
            objects = (
                [each for each in found if isinstance(each, dict) and kubernetes_job.is_job(each)]
                if isinstance(found, list)
                else []
            )
            with contextlib.suppress(InputRefused):
                jobs, _ = kubernetes_job.read_all(objects, range(len(objects)))
                reader.check_all([job.job for job in jobs])
