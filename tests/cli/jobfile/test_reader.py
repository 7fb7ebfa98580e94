"""Job files: safe YAML, Kubernetes Jobs with their ignored fields named, flags over files, GPU shorthand."""

from typing import Any

import pytest

from fairlead.errors import InputRefused
from fairlead.jobfile import reader, yaml_text
from fairlead.jobfile.gpu_models import PRODUCT_LABEL, gpu_words

A100, A100_40, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3"


def load(text: str) -> reader.Loaded:
    return reader.load(text, name="job.yaml")


def test_the_job_file_of_the_design_is_valid() -> None:
    """A job file with every common field passes the decoder that the gateway uses."""
    text = """
name: train-llm
queue: research/vision
command: [torchrun, train.py]
nodes: 2
resources: {nvidia.com/gpu: 8, cpu: "32", memory: 256Gi, shm: 64Gi}
nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
gpu: {memory: 40Gi, computeCapability: ">=8.0"}
time: {total: 7d, grace: 2m}
priority: 50
retries: {max: 3}
"""
    spec = reader.check(load(text).jobs[0])
    assert (spec.nodes, spec.resources["nvidia.com/gpu"], spec.retries.max) == (2, 8, 3)


def test_values_stay_what_people_wrote() -> None:
    """YAML 1.1 would read 2:00 as 120, no as False and 0.5 as a float; here they stay words."""
    job = load(
        "command: [a]\ntime: {total: 2:00}\nenv: {A: no, B: '1'}\nresources: {cpu: 0.5}\nstartAt: 2027-01-31T10:00:00+01:00\n"
    ).jobs[0]
    assert job["time"] == {"total": "2:00"}
    assert job["env"] == {"A": "no", "B": "1"}
    assert job["resources"] == {"cpu": "0.5"}
    assert job["startAt"] == "2027-01-31T10:00:00+01:00"
    reader.check(job)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("a: &x {b: 1}\n<<: *x\n", "aliases"),
        ("name: a\nname: b\n", "given twice"),
        ("a: !!python/object/apply:os.system [id]\n", "tags such as .*os.system are not accepted"),
        ("a: [1\n", "expected YAML"),
        ("- 1\n", "expected a job file"),
        ("just words\n", "expected a job file"),
        ("", "found nothing"),
        ("a: " + "[" * 3000, "expected YAML"),
        ("# " + "x" * 70_000, "at most 65536 bytes"),
    ],
)
def test_unsafe_and_broken_files_are_refused(text: str, expected: str) -> None:
    """Aliases, doubled fields, tags, broken, deep, empty and oversized files are refused in words."""
    with pytest.raises(InputRefused, match=expected):
        load(text)


def test_several_documents_are_several_jobs() -> None:
    """`---` and a top-level list both give one job each."""
    assert [job["command"] for job in load("command: [a]\n---\ncommand: [b]\n").jobs] == [["a"], ["b"]]
    assert [job["command"] for job in load("[{command: [a]}, {command: [b]}]").jobs] == [["a"], ["b"]]


def test_errors_name_their_fields() -> None:
    """Everything wrong with a job file is named at once, by its path."""
    with pytest.raises(InputRefused) as caught:
        reader.check({"command": ["a"], "nodes": 0, "resources": {"cpu": "many"}})
    assert "nodes: expected 1 to" in str(caught.value)
    assert "resources.cpu: expected a CPU quantity" in str(caught.value)


KUBERNETES = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, labels: {kueue.x-k8s.io/queue-name: research, team: a}}
spec:
  backoffLimit: 2
  activeDeadlineSeconds: 600
  ttlSecondsAfterFinished: 60
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 30
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
      volumes: [{name: data, hostPath: {path: /data}}]
      containers:
      - name: main
        image: pytorch:2.9
        command: [python]
        args: [train.py]
        workingDir: /src
        env: [{name: A, value: "1"}, {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}]
        volumeMounts: [{name: data, mountPath: /data}]
        resources: {limits: {nvidia.com/gpu: 8, memory: 64Gi}, requests: {cpu: "4", memory: 32Gi}}
"""


def test_a_pre_stop_command_is_the_notice() -> None:
    """For as long as Kubernetes would give the pod; nothing of it is left to be named as ignored."""
    stop = '        lifecycle: {preStop: {exec: {command: [sh, -c, "kill -USR1 1"]}}}\n'
    for grace, notice in (("terminationGracePeriodSeconds: 90", "90s"), ("enableServiceLinks: true", "30s")):
        loaded = load(KUBERNETES.replace("terminationGracePeriodSeconds: 30", grace) + stop)
        assert loaded.jobs[0]["checkpoint"] == {"command": ["sh", "-c", "kill -USR1 1"], "notice": notice}
        assert not [note for note in loaded.notes if "lifecycle" in note]
        reader.check(loaded.jobs[0])


def test_a_kubernetes_job_is_translated_and_what_is_ignored_is_named() -> None:
    """A plain batch/v1 Job becomes a valid job file; fields that matter and are not followed are unkept, others noted."""
    loaded = load(KUBERNETES)
    assert loaded.jobs == [
        {
            "name": "train",
            "queue": "research",
            "labels": {"team": "a"},
            "image": "pytorch:2.9",
            "command": ["/bin/sh", "-c", 'export SECRET="$(cat /run/secrets/s-k)"\nexec python train.py'],
            "env": {"A": "1"},
            "secrets": ["s-k"],
            "volumes": [{"name": "data", "mountPath": "/data"}],
            "workdir": "/src",
            "resources": {"nvidia.com/gpu": 8, "cpu": "4", "memory": "64Gi"},
            "nodeSelector": {PRODUCT_LABEL: A100},
            "time": {"total": "600s", "grace": "30s"},
            "retries": {"max": 2},
        }
    ]
    reader.check(loaded.jobs[0])
    assert [note.removeprefix("job.yaml: ") for note in loaded.notes] == [
        "key k of the Secret s is the secret s-k here: a file of the job's project on its node",
        "volume data (/data): the directory that the nodes list as the volume data",
        "/bin/sh sets SECRET before the command starts; the image needs it",
        "spec.ttlSecondsAfterFinished is not followed",
    ]
    assert loaded.unkept == {}


def test_unsupported_fields_are_refused_unless_ignored_by_name() -> None:
    """A job that starts without a requested property is worse than a refusal."""
    unkept = {"hold": "x", "spec.suspend": "y"}
    with pytest.raises(InputRefused, match=r"(?s)hold: x.*spec.suspend: y") as refused:
        reader.require_kept(unkept, [])
    assert refused.value.hint == "to submit without: --ignore hold --ignore spec.suspend"
    with pytest.raises(InputRefused, match=r"spec\.suspend"):
        reader.require_kept(unkept, ["--hold"])
    assert len(reader.require_kept(unkept, ["all"])) == len(reader.require_kept(unkept, ["hold", "spec.suspend"])) == 2
    assert reader.require_kept({}, []) == []


def test_another_kubernetes_kind_is_refused() -> None:
    """A Deployment is not silently run as a job."""
    with pytest.raises(
        InputRefused, match=r"document 1: expected a Kubernetes batch/v1 Job.*, found apps/v1 Deployment"
    ):
        load("apiVersion: apps/v1\nkind: Deployment\n")


def test_flags_win_over_the_file_without_emptying_it() -> None:
    """`--gpus 4` replaces that one amount; the file's memory stays."""
    merged = reader.merge(
        {"name": "a", "resources": {"nvidia.com/gpu": 8, "memory": "1Gi"}}, {"resources": {"nvidia.com/gpu": 4}}
    )
    assert merged == {"name": "a", "resources": {"nvidia.com/gpu": 4, "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", {"resources": {"nvidia.com/gpu": 8}}),
        ("H100:8", {"resources": {"nvidia.com/gpu": 8}, "nodeSelector": {PRODUCT_LABEL: H100}}),
        ("h100", {"resources": {"nvidia.com/gpu": 1}, "nodeSelector": {PRODUCT_LABEL: H100}}),
        ("24GB..:2", {"resources": {"nvidia.com/gpu": 2}, "gpu": {"memory": "24G"}}),
        ("NVIDIA-L4:1", {"resources": {"nvidia.com/gpu": 1}, "nodeSelector": {PRODUCT_LABEL: "NVIDIA-L4"}}),
        ("SXM4-40GB:4", {"resources": {"nvidia.com/gpu": 4}, "nodeSelector": {PRODUCT_LABEL: A100_40}}),
    ],
)
def test_gpu_shorthand_becomes_canonical_fields(text: str, expected: dict[str, Any]) -> None:
    """Model, least memory and count in one word equal the fields of a job file."""
    assert gpu_words(text, lambda: [A100, A100_40, H100, H100]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("A100:8", "several products"), ("B200", "no node has"), ("24GB..80GB", "expected"), ("1..2", "expected")],
)
def test_gpu_shorthand_that_is_not_one_thing_is_refused(text: str, expected: str) -> None:
    """An ambiguous or unknown model, and ranges, are refused instead of guessed."""
    with pytest.raises(InputRefused, match=expected):
        gpu_words(text, lambda: [A100, A100_40, H100])


@pytest.mark.parametrize(
    "text",
    [
        "priority: " + "9" * 5000,
        'name: !!int ""',
        "name: !!int abc",
        "name: !!timestamp x",
        "name: !!bool maybe",
        "name: !!map x",
        'name: "\\U99999999"',
        'name: "\\ud800"',
        'priority: !!int "0x' + "f" * 5000 + '"',
        "&a [*a]",
    ],
)
def test_a_value_that_no_field_can_hold_is_refused_with_its_place(text: str) -> None:
    """Tags, endless numbers and half characters: an error of the file, not a traceback."""
    with pytest.raises(InputRefused, match="expected YAML or JSON"):
        yaml_text.read_yaml(text, "job.yaml")


def test_a_quoted_word_and_a_large_number_are_read() -> None:
    """Quotes keep a number text, as does the tag for text; 64 bits are read as a number."""
    assert yaml_text.read_yaml('a: "12"\nb: !!str 12\nc: 18446744073709551615', "x") == [
        {"a": "12", "b": "12", "c": 2**64 - 1}
    ]
