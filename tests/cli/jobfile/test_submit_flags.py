"""Options of `submit` as words of a job file, and how they win over a file's own."""

from typing import Any

import msgspec
import pytest

from fairlead.errors import InputRefused
from fairlead.jobfile import reader
from fairlead.jobfile.submit_flags import SubmitOptions, jobfile_words, override
from fairlead.render.columns import gpu_count, job_request
from fairlead_schemas.http.api import Job
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, job_document

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-3g.20gb"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"gpus": "8"}, {"resources": {GPU: 8}}),
        ({"gpus": "0.5", "cpus": "2"}, {"resources": {GPU: "0.5", "cpu": "2"}}),
        ({"mig": "3g.20gb"}, {"resources": {MIG: 1}}),
        ({"mig": "3g.20gb:2"}, {"resources": {MIG: 2}}),
        ({"mig": "1g.5gb+me"}, {"resources": {"nvidia.com/mig-1g.5gb.me": 1}}),
        ({"gpu_model": ["A100"], "gpu_memory": "40Gi"}, {"gpu": {"model": "A100", "memory": "40Gi"}}),
        ({"gpu_model": ["A100", "H100"]}, {"gpu": {"model": ["A100", "H100"]}}),
        ({"nodes": "4"}, {"nodes": 4}),
        ({"nodes": "2-8"}, {"nodes": "2-8"}),
        ({"tasks": 16}, {"tasks": 16}),
        (
            {"require": ["rack"], "prefer": ["numa", "node"]},
            {"topology": {"require": ["rack"], "prefer": ["numa", "node"]}},
        ),
        ({"toleration": ["spot:NoSchedule"]}, {"tolerations": ["spot:NoSchedule"]}),
        ({"exclusive": True}, {"exclusive": True}),
        ({"hold": True}, {"held": True}),
        ({"nodelist": "n[1-2],x"}, {"nodeAffinity": ["fairlead/node in (n1,n2,x)"]}),
        ({"exclude": "n3,n3"}, {"nodeAffinity": ["fairlead/node notin (n3)"]}),
        ({"output_keep": "1h"}, {"output": {"keep": "1h"}}),
        ({"output_keep": "7d", "output_max": "64Mi"}, {"output": {"keep": "7d", "max": "64Mi"}}),
    ],
    ids=repr,
)
def test_options_become_fields(given: dict[str, Any], expected: dict[str, Any]) -> None:
    """These make a job file."""
    words = jobfile_words(SubmitOptions(**given))
    assert words == expected
    reader.check({"command": ["true"], **words})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"nodes": "2", "tasks": 4}, "expected --nodes or --tasks, found both"),
        ({"gpus": "1", "mig": "3g.20gb"}, "expected --gpus or --mig, found both"),
        ({"mig": "3g"}, '--mig: expected a profile and a count such as "3g.20gb" or "3g.20gb:2", found "3g"'),
        ({"mig": "3g.20gb:x"}, "--mig: expected a profile and a count"),
        ({"env": ["A"]}, "--env: expected NAME=VALUE"),
        (
            {"nodelist": "n[1-3]", "exclude": "n2,n9"},
            "--exclude: expected none of the nodes of --nodelist, found n2 in both",
        ),
    ],
)
def test_invalid_options_are_refused(given: dict[str, Any], says: str) -> None:
    """With the expected and the found value."""
    with pytest.raises(InputRefused, match=says.replace("(", ".")):
        jobfile_words(SubmitOptions(**given))


@pytest.mark.parametrize(
    ("file", "words", "expected"),
    [
        ({"resources": {GPU: 8, "cpu": "4"}}, {"resources": {MIG: 1}}, {"resources": {"cpu": "4", MIG: 1}}),
        ({"resources": {MIG: 1}}, {"resources": {"cpu": "4"}}, {"resources": {MIG: 1, "cpu": "4"}}),
        ({"nodes": 4}, {"tasks": 8}, {"tasks": 8}),
        ({"tasks": 8, "gpusPerTask": 1}, {"nodes": 2}, {"nodes": 2, "resources": {GPU: 1}}),
        ({"tasks": 8, "gpusPerTask": 1}, {"resources": {GPU: "0.5"}}, {"tasks": 8, "resources": {GPU: "0.5"}}),
        ({"nodes": 4}, {"nodes": "2-8"}, {"nodes": "2-8"}),
        (
            {"output": {"keep": "1h", "max": "1Gi"}},
            {"output": {"keep": "2d"}},
            {"output": {"keep": "2d", "max": "1Gi"}},
        ),
        ({"gpu": {"memory": "40Gi"}}, {"gpu": {"model": "A100"}}, {"gpu": {"memory": "40Gi", "model": "A100"}}),
    ],
    ids=repr,
)
def test_options_win_over_a_file(file: dict[str, Any], words: dict[str, Any], expected: dict[str, Any]) -> None:
    """GPUs of one kind give way to those of another, tasks to nodes."""
    before = {**file}
    assert override(file, words) == expected
    assert file == before
    reader.check({"command": ["true"], **expected})


def test_the_command_line_has_them_all(gateway: GatewayStub, run: Run) -> None:
    """From words to the file that is sent."""
    gateway.on("POST", "/v1/jobs", {"id": "812", "state": "queued", "sequence": 41}, 201)
    ran = run(
        "submit",
        "--tasks",
        "16",
        "--gpus",
        "0.5",
        "--gpu-model",
        "A100",
        "--gpu-model",
        "H100",
        "--gpu-memory",
        "40Gi",
        "--require",
        "rack",
        "--prefer",
        "numa",
        "--toleration",
        "spot",
        "--exclusive",
        "--output-keep",
        "7d",
        "--output-max",
        "64Mi",
        "--workdir",
        "/d",
        "--",
        "true",
    )
    assert (ran.code, ran.err) == (0, "")
    assert gateway.bodies() == [
        {
            "command": ["true"],
            "tasks": 16,
            "resources": {GPU: "0.5"},
            "gpu": {"model": ["A100", "H100"], "memory": "40Gi"},
            "topology": {"require": ["rack"], "prefer": ["numa"]},
            "tolerations": ["spot"],
            "exclusive": True,
            "output": {"keep": "7d", "max": "64Mi"},
            "workdir": "/d",
        }
    ]


@pytest.mark.parametrize(
    ("words", "units", "gpus"),
    [
        ({}, 1, "0"),
        ({"resources": {GPU: 8}}, 1, "8"),
        ({"nodes": 2, "resources": {GPU: 8}}, 2, "2x8"),
        ({"nodes": "2-4", "resources": {GPU: 1}}, 4, "4x1"),
        ({"resources": {GPU: "0.5"}}, 1, "0.500"),
        ({"resources": {MIG: 2}}, 1, "2x3g.20gb"),
        ({"resources": {GPU: 8}, "groups": [{"nodes": 2, "resources": {GPU: 1}}, {}]}, 4, "8+2x1"),
        ({"nodes": "many"}, 1, "0"),
    ],
)
def test_lists_say_what_a_waiting_job_asks_for(words: dict[str, Any], units: int, gpus: str) -> None:
    """Of every kind; a file that cannot be read asks for nothing."""
    document = job_document(state="queued", gpus={}, nodes=[], spec={"command": ["true"], **words})
    job = msgspec.json.decode(msgspec.json.encode(document), type=Job)
    assert (job_request(job).units, gpu_count(job)) == (units, gpus)


def test_nodes_by_name_add_to_what_the_file_says_of_nodes() -> None:
    """All requirements must hold."""
    words = jobfile_words(SubmitOptions(exclude="n[1-2]"))
    found = override({"nodeAffinity": ["zone=a"]}, words)
    assert found["nodeAffinity"] == ["zone=a", "fairlead/node notin (n1,n2)"]


@pytest.mark.parametrize("names", ["n[1", "N1", "n1;n2", "n[3-1]", "n[1-300]", ","])
def test_names_of_nodes_that_are_none_are_refused(names: str) -> None:
    """The option, what was expected and what was found."""
    with pytest.raises(InputRefused, match="--nodelist: expected") as refused:
        jobfile_words(SubmitOptions(nodelist=names))
    assert f'found "{names}"' in str(refused.value)
