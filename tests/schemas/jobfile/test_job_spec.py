"""The job file: strict, with mistakes reported by path, and converted to integers."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.jobfile.job_spec import SPEC_BYTES_MAX, canonical, decode_job, job_from
from fairlead_schemas.jobfile.resolve import decode_and_check, resolve
from fairlead_schemas.policies.launchers import launcher_of
from fairlead_schemas.queuefile.parse import InvalidQueues, read_queue_file
from fairlead_schemas.units import suggestions
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.units.type_errors import TYPE_ERRORS_MAX
from fairlead_schemas.units.validation import InvalidJob
from fairlead_schemas.wire.commands import ID_CHARS_MAX, MESSAGE_BYTES_MAX, USER_CHARS_MAX, SubmitJob, encode_commands
from fairlead_schemas.wire.resource_requests import SELECTOR_BYTES_MAX
from fairlead_schemas.wire.resources import Request


def job(**fields: Any) -> dict[str, Any]:
    """A job file's content with the least it needs."""
    return {"command": ["true"], **fields}


def submit(**fields: Any) -> SubmitJob:
    """Decode and resolve a job file."""
    return resolve(job_from(job(**fields)), command_id="c1", user="ada")


def outcome(attempt: Callable[[], object]) -> object:
    """Return the result of an attempt, or the errors of its refusal."""
    try:
        return (attempt(),)
    except InvalidJob as error:
        return error.errors


def refused(payload: bytes) -> list[str]:
    """Paths that a refusal names."""
    with pytest.raises(InvalidJob) as error:
        decode_job(payload)
    return [each.field for each in error.value.errors]


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (b'{"command":["true"],"nodse":2}', "nodse"),
        (b'{"command":["true"],"time":{"totl":"1h"}}', "time.totl"),
        (b'{"command":["true"],"gpu":{"memory":1.5}}', "gpu.memory"),
        (b'{"command":["true"],"nodes":2.5}', "nodes"),
        (b'{"command":["true"],"nodes":null}', "nodes"),
        (b'{"command":["true"],"nodes":true}', "nodes"),
        (b'{"command":"true"}', "command"),
        (b'{"command":["true",1]}', "command[1]"),
        (b'{"command":["true"],"kind":"cron"}', "kind"),
        (b'{"command":["true"],"env":{"A":"x","B":1}}', "env.B"),
        (b'{"command":["true"],"resources":{"cpu":1.5}}', "resources.cpu"),
        (b'{"command":["true"],"env":{"A":1}} x', "env[...]"),
        (b"{}", "command"),
        (b"[]", ""),
        (b"null", ""),
        (b"", ""),
        (b'{"command":["true"]', ""),
        (b'{"command":["true"]} x', ""),
        (b'{"command":["\xff"]}', ""),
        (b'{"command":["\\ud800"]}', ""),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "a"),
        (b'{"command":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "command[0]"),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_a_bad_file_is_refused_by_path(payload: bytes, path: str) -> None:
    """Unknown fields, wrong types, deep nesting and broken text are refused; the path says where."""
    assert refused(payload) == [path]


def test_a_large_file_is_refused_by_its_size() -> None:
    """One byte over the limit, before anything is decoded."""
    with pytest.raises(InvalidJob, match=f"at most {SPEC_BYTES_MAX} bytes, found {SPEC_BYTES_MAX + 1}"):
        decode_job(b" " * (SPEC_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (b'{"command":["true"],"command":["false"]}', ["command"]),
        (b'{"command":["true"],"env":{"A":"1","B":"2","A":"3"},"env":{"A":"1","A":"2"}}', ["env", "env.A"]),
        (b'{"command":["true"],"volumes":[{"name":"a","mountPath":"/a","name":"b"}]}', ["volumes[0].name"]),
        (b'{"command":["true"],"args":["command","command"]}', []),
    ],
)
def test_a_duplicate_key_is_refused(body: bytes, paths: list[str]) -> None:
    """JSON's decoders take the last one silently; a reviewer may have read the first."""
    try:
        decode_job(body)
        found = []
    except InvalidJob as error:
        found = [each.field for each in error.errors]
    assert found == paths


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_crash_the_decoder(payload: bytes) -> None:
    """All bytes decode to a job or raise InvalidJob."""
    assert outcome(lambda: decode_job(payload)) != []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=10,
    ),
    st.sampled_from(
        [
            "nodes",
            "resources",
            "gpu",
            "time",
            "priority",
            "retries",
            "array",
            "startAt",
            "env",
            "queue",
            "name",
            "args",
            "tasks",
            "gpusPerTask",
            "groups",
            "topology",
            "tolerations",
            "nodeAffinity",
            "nodeSelector",
            "placement",
            "exclusive",
            "launcher",
            "processesPerNode",
            "onFailure",
        ]
    ),
)
def test_no_value_of_a_field_crashes(value: object, field: str) -> None:
    """Any value of a field becomes a command or an InvalidJob that names a field."""
    assert outcome(lambda: submit(**{field: value})) != []


def test_fields_become_integers() -> None:
    """The example of the design, in the log's units."""
    command = submit(
        name="train-llm",
        queue="research/vision",
        nodes=2,
        resources={"nvidia.com/gpu": 8, "cpu": "32", "memory": "256Gi", "shm": "64Gi"},
        nodeSelector={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "fairlead/rack": "r1"},
        gpu={"memory": "40Gi", "computeCapability": ">=8.0"},
        time={"total": "7d", "grace": "2m"},
        priority=60,
        retries={"max": 3},
        array="1-100",
        startAt="2027-01-31T10:00:00+01:00",
    )
    assert command.request == Request(
        nodes=2,
        gpu_milli=8000,
        cpu_milli=32000,
        memory_mib=262144,
        shm_mib=65536,
        selector=("fairlead/rack=r1", "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB"),
        gpu_memory_mib=40960,
        compute_capability=80,
    )
    assert (command.name, command.queue, command.priority, command.retries) == ("train-llm", "research/vision", 60, 3)
    assert (command.total_ns, command.grace_ns) == (7 * 86400 * SECOND_NS, 120 * SECOND_NS)
    assert (command.array, command.start_at_ns) == ((1, 100), 1_801_386_000 * SECOND_NS)


def test_the_least_job_has_the_stated_defaults() -> None:
    """One CPU, one GiB, no GPU, the program's name, the default queue, half a minute of grace."""
    command = submit(command=["/usr/bin/python3", "train.py"])
    assert command.request == Request(nodes=1, cpu_milli=1000, memory_mib=1024)
    assert (command.name, command.queue, command.priority) == ("python3", "default", 50)
    assert (command.grace_ns, command.total_ns, command.array, command.start_at_ns) == (30 * SECOND_NS, 0, None, 0)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"command": []}, "command"),
        ({"command": [""]}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"args": ["a\0b"]}, "command"),
        ({"name": "x" * 129}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"project": "x" * 129}, "project"),
        ({"project": "a\nb"}, "project"),
        ({"workdir": "a\0b"}, "workdir"),
        ({"image": "a\0b"}, "image"),
        ({"nodeSelector": {"a=b": "c"}}, "nodeSelector"),
        ({"gpu": {"computeCapability": "\u0668.\u0660"}}, "gpu.computeCapability"),
        ({"nodeSelector": {"k" * 5000: "v" * 5000}}, "nodeSelector"),
        ({"nodeSelector": {"k": "a\nb"}}, "nodeSelector"),
        ({"queue": "Research"}, "queue"),
        ({"queue": ""}, "queue"),
        ({"queue": "a.b"}, "queue"),
        ({"nodes": 0}, "nodes"),
        ({"nodes": -1}, "nodes"),
        ({"nodes": 4097}, "nodes"),
        ({"nodes": 10**30}, "nodes"),
        ({"priority": -1}, "priority"),
        ({"priority": 10**30}, "priority"),
        ({"retries": {"max": -1}}, "retries.max"),
        ({"resources": {"gpu": 1}}, "resources.gpu"),
        ({"resources": {"nvidia.com/gpu": -1}}, "resources.nvidia.com/gpu"),
        ({"resources": {"nvidia.com/gpu": 65}}, "resources.nvidia.com/gpu"),
        ({"resources": {"cpu": "many"}}, "resources.cpu"),
        ({"resources": {"memory": "1Gb"}}, "resources.memory"),
        ({"resources": {"memory": "1Gi", "shm": "2Gi"}}, "resources.shm"),
        ({"gpu": {"memory": "big"}}, "gpu.memory"),
        ({"gpu": {"computeCapability": "8"}}, "gpu.computeCapability"),
        ({"time": {"total": "soon"}}, "time.total"),
        ({"time": {"total": "0s"}}, "time.total"),
        ({"time": {"total": "0"}}, "time.total"),
        ({"time": {"grace": "1000000w"}}, "time.grace"),
        ({"array": 0}, "array"),
        ({"array": -3}, "array"),
        ({"array": "7-3"}, "array"),
        ({"array": "x"}, "array"),
        ({"array": 100_001}, "array"),
        ({"array": 10**30}, "array"),
        ({"startAt": "tomorrow"}, "startAt"),
        ({"startAt": "2027-01-31T10:00:00"}, "startAt"),
        ({"startAt": "0001-01-01T00:00:00+14:00"}, "startAt"),
        ({"startAt": "9999-12-31T00:00:00Z"}, "startAt"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "env.CUDA_VISIBLE_DEVICES"),
        ({"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "env.NVIDIA_VISIBLE_DEVICES"),
        ({"env": {"A=B": "x"}}, "env.A=B"),
        ({"env": {"A": "x\0"}}, "env.A"),
        ({"env": {"A\nB": "x"}}, "env.A\\nB"),
        ({"env": {"1A": "x"}}, "env.1A"),
        ({"env": {"": "x"}}, "env."),
        ({"env": {"A B": "x"}}, "env.A B"),
        ({"labels": {"a\nb": "x"}}, "labels.a\\nb"),
        ({"labels": {"a": "x\ny"}}, "labels.a"),
        ({"labels": {"": "x"}}, "labels."),
        ({"project": "../p"}, "project"),
        ({"project": "*"}, "project"),
        ({"project": ">"}, "project"),
        ({"project": "a b"}, "project"),
        ({"project": "a/b"}, "project"),
        ({"workdir": "work"}, "workdir"),
        ({"workdir": "./work"}, "workdir"),
        ({"workdir": "/a\nb"}, "workdir"),
        ({"resources": {"memory": "0"}}, "resources.memory"),
        ({"resources": {"memory": 0}}, "resources.memory"),
    ],
    ids=repr,
)
def test_a_value_out_of_range_is_refused_by_path(fields: dict[str, Any], path: str) -> None:
    """One error, with the path of the one thing that is wrong."""
    with pytest.raises(InvalidJob) as error:
        submit(**fields)
    assert [each.field for each in error.value.errors] == [path]


def test_an_error_names_its_field_on_one_line() -> None:
    """The name may have any characters: errors are printed as lines."""
    with pytest.raises(InvalidJob) as error:
        decode_job(b'{"command":["true"],"a\\nb\\u001b[2J":1}')
    assert [each.field for each in error.value.errors] == ["a\\nb\\x1b[2J"]


def test_all_mistakes_are_reported_at_once() -> None:
    """A user need not send a file three times to find three mistakes."""
    with pytest.raises(InvalidJob) as error:
        submit(nodes=0, priority=-1, resources={"cpu": "x", "disk": 1})
    assert sorted(each.field for each in error.value.errors) == ["nodes", "priority", "resources.cpu", "resources.disk"]


WRONG_TYPES = {
    "command": "true",
    "nodes": 2.5,
    "env": {"GOOD": "x", "NUMBER": 1, "FLAG": True},
    "resources": {"cpu": 1.5},
    "groups": [{"resources": {"memory": "1Gi"}}, {"resources": {"shm": None}, "nodeSelector": {"zone": 1}}],
    "volumes": ["data:/data", {"name": "scratch", "path": "/scratch"}],
    "checkpoint": {"signal": 10},
    "topology": {"require": ["rack", 1]},
    "nodse": 2,
}


@pytest.mark.parametrize(
    "read", [lambda words: decode_job(msgspec.json.encode(words)), job_from], ids=["JSON", "plain values"]
)
def test_every_wrong_type_is_reported_with_the_key_of_its_map(read: Callable[[dict[str, Any]], object]) -> None:
    """The decoder itself stops at the first, and of a map it names no key."""
    with pytest.raises(InvalidJob) as error:
        read(WRONG_TYPES)
    assert {each.field: each.message for each in error.value.errors} == {
        "command": 'expected a list of words, found "true"; write [true]',
        "nodes": 'expected a whole number, a word or a map with min, max, found 2.5; put it in quotes: "2.5"',
        "env.NUMBER": 'expected a word, found 1; put it in quotes: "1"',
        "env.FLAG": 'expected a word, found true; put it in quotes: "true"',
        "resources.cpu": 'expected a word or a whole number, found 1.5; put it in quotes: "1.5"',
        "groups[1].resources.shm": (
            "expected a word or a whole number, found nothing; give it a value, or leave the field out"
        ),
        "groups[1].nodeSelector.zone": 'expected a word, found 1; put it in quotes: "1"',
        "volumes[1].path": "unknown field; expected name, mountPath, readOnly, create, made; did you mean mountPath?",
        "checkpoint.signal": 'expected a word, found 10; put it in quotes: "10"',
        "topology.require[1]": 'expected a word, found 1; put it in quotes: "1"',
        "nodse": "unknown field; did you mean nodes?",
    }


def test_the_list_of_wrong_types_is_bounded() -> None:
    """A body of thousands of mistakes does not become an answer of megabytes."""
    with pytest.raises(InvalidJob) as error:
        decode_job(msgspec.json.encode(job(env={f"N{n}": n for n in range(2000)})))
    assert len(error.value.errors) == TYPE_ERRORS_MAX


def test_the_search_for_what_was_meant_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of thousands of unknown fields does not keep a gateway busy for seconds."""
    sought: list[str] = []
    monkeypatch.setattr(suggestions, "get_close_matches", lambda name, *rest: sought.append(name) or [])
    with pytest.raises(InvalidJob) as error:
        decode_and_check(msgspec.json.encode(job(**{f"unknown{n}": n for n in range(3000)})))
    with pytest.raises(InvalidQueues):
        read_queue_file({"queues": {"a": {f"unbekannt{n}": n for n in range(3000)}}})
    assert len(error.value.errors) == TYPE_ERRORS_MAX
    assert len(sought) <= 4 * TYPE_ERRORS_MAX


def test_a_key_that_is_no_text_is_reported() -> None:
    """YAML has such keys, JSON does not."""
    with pytest.raises(InvalidJob) as error:
        job_from(job(env={1: "x"}))
    assert [(each.field, each.message) for each in error.value.errors] == [
        ("env.1", 'expected a word, found 1; put it in quotes: "1"')
    ]


def test_equal_jobs_have_equal_bytes() -> None:
    """Order of fields and spelled-out defaults make no difference to the canonical spec or its digest."""
    one = job_from({"command": ["true"], "nodes": 2, "env": {"B": "2", "A": "1"}})
    other = job_from({"env": {"A": "1", "B": "2"}, "queue": "default", "nodes": 2, "command": ["true"]})
    assert canonical(one) == canonical(other)
    assert decode_job(canonical(one)) == one


def test_a_key_binds_the_digest_of_the_content() -> None:
    """The digest tells a repetition from a conflict; without a key there is none."""
    digests = [
        resolve(job_from(job(nodes=nodes)), command_id=command_id, user="ada", key="k").digest
        for nodes, command_id in ((1, "c1"), (1, "c2"), (2, "c3"))
    ]
    assert digests[0] == digests[1] != digests[2]
    assert submit().digest == ""


def test_the_command_carries_the_canonical_spec() -> None:
    """The log holds the job file in its canonical form, not its bytes as received."""
    assert bytes(submit(nodes=1, queue="default").spec) == b'{"command":["true"]}'
    assert msgspec.json.decode(bytes(submit(name="x").spec)) == {"command": ["true"], "name": "x"}


def test_the_largest_job_fits_a_message() -> None:
    """An accepted job becomes a command; one that no message can carry would be acknowledged and lost."""
    selector = {f"{n:03}": '"' * 77 for n in range(SELECTOR_BYTES_MAX // 81)}
    fields = {"project": "p" * 128, "name": '"' * 128, "nodeSelector": selector}
    room = SPEC_BYTES_MAX - len(canonical(job_from(job(**fields)))) - 20
    largest = submit(**fields, args=["x" * room])
    assert len(largest.spec) > SPEC_BYTES_MAX - 100
    assert len(encode_commands([largest])) <= MESSAGE_BYTES_MAX - ID_CHARS_MAX - USER_CHARS_MAX - 100


def test_a_memory_that_cannot_be_read_is_one_error() -> None:
    """Not a second one on shm, which would be compared with nothing."""
    with pytest.raises(InvalidJob) as caught:
        resolve(job_from({"command": ["x"], "resources": {"memory": "256Gb", "shm": "64Gi"}}), command_id="c", user="u")
    assert [error.field for error in caught.value.errors] == ["resources.memory"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"command": ["python", "train.py"]}, "none"),
        ({"command": ["/opt/bin/torchrun", "train.py"]}, "torchrun"),
        ({"command": ["mpirun", "./solve"]}, "mpi"),
        ({"command": ["mpirun", "./solve"], "launcher": "none"}, "none"),
        ({"command": ["bash", "run.sh"], "launcher": "mpi"}, "mpi"),
    ],
)
def test_the_command_says_its_launcher_unless_the_file_does(spec: dict[str, Any], expected: str) -> None:
    """mpirun and torchrun are known by their names."""
    assert launcher_of(spec.get("launcher", ""), spec["command"]) == expected


@pytest.mark.parametrize(
    ("words", "gang"),
    [
        ({}, ""),
        ({"onFailure": "continue"}, "continue"),
        ({"launcher": "mpi"}, "leader"),
        ({"launcher": "env", "onFailure": "stop"}, ""),
    ],
)
def test_the_rule_for_the_end_of_one_rank_is_in_the_command(words: dict[str, Any], gang: str) -> None:
    """The placer uses it, and never reads the job file."""
    assert submit(**words).gang == gang


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"launcher": "sge"}, "launcher"),
        ({"onFailure": "ignore"}, "onFailure"),
        ({"launcher": "mpi", "onFailure": "continue"}, "onFailure"),
        ({"launcher": "env", "processesPerNode": 0}, "processesPerNode"),
        ({"launcher": "env", "processesPerNode": 2, "tasks": 4}, "processesPerNode"),
        ({"processesPerNode": 2}, "processesPerNode"),
    ],
)
def test_rules_for_ranks_without_effect_are_refused(words: dict[str, Any], field: str) -> None:
    """With the field, and the alternative."""
    with pytest.raises(InvalidJob) as error:
        submit(**words)
    assert [each.field for each in error.value.errors] == [field]
