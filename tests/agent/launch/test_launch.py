"""From an order to a program: what a job file may not change, whatever it was let through by."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_agent.launch.plan import NodePlace, Program, Unlaunchable, plan
from fairlead_schemas.jobfile.job_spec import RESERVED_ENV_PREFIXES
from fairlead_schemas.wire.desired import RunOrder

PROCESSES = NodePlace("n1", "127.0.0.1", {"PATH": "/bin"}, gpus_simulated=True, containers=False)
CONTAINERS = PROCESSES._replace(containers=True)
ORDER = RunOrder(job="7", attempt=1, rank=0, epoch=1, gpus=("GPU-a",))
NAMES = st.builds(
    lambda prefix, rest: prefix + rest, st.sampled_from([*RESERVED_ENV_PREFIXES, "", "X"]), st.text(max_size=8)
)


def program(**fields: Any) -> Program:
    return msgspec.convert({"command": ["x"], **fields}, Program)


@given(st.dictionaries(NAMES, st.text(max_size=8), max_size=8))
def test_a_process_is_shown_its_own_devices_whatever_the_job_sets(env: dict[str, str]) -> None:
    """Device variables and what is loaded into programs are the same with the job's variables and without."""
    reserved = [
        {
            name: value
            for name, value in plan(ORDER, each, PROCESSES).env.items()
            if name.startswith(RESERVED_ENV_PREFIXES)
        }
        for each in (program(env=env), program())
    ]
    assert reserved[0] == reserved[1]
    assert reserved[0]["CUDA_VISIBLE_DEVICES"] == "GPU-a"


@given(st.dictionaries(NAMES, st.text(max_size=8), max_size=8))
def test_no_variable_hides_in_anothers_name(env: dict[str, str]) -> None:
    """Every name is one that an environment can hold."""
    names = plan(ORDER, program(env=env), PROCESSES).env
    assert [name for name in names if not name or "=" in name or "\0" in name + names[name]] == []


def test_a_process_has_no_volumes_and_no_secrets() -> None:
    """The job is refused with the alternative, instead of running without them."""
    for wanted in (program(volumes=["a:/a"]), program(secrets=["a"])):
        with pytest.raises(Unlaunchable, match="fairlead/runtime: docker"):
            plan(ORDER, wanted, PROCESSES)


def test_the_agent_asks_the_rules_again() -> None:
    """An order comes from elsewhere; what no gateway would let through is refused here, too."""
    for wanted in (program(volumes=["a:/proc"]), program(secrets=["../x"]), program(secrets=["x"], project="../y")):
        with pytest.raises(Unlaunchable, match="expected"):
            plan(ORDER, wanted, CONTAINERS)


def test_mounts_of_a_launch() -> None:
    """Volumes and secrets, filed under the job's project."""
    launch = plan(ORDER, program(volumes=["a:/a:ro"], secrets=["t"], project="vision"), CONTAINERS)
    assert (launch.project, launch.volumes[0].path, launch.secrets[0].path) == ("vision", "/a", "/run/secrets/t")
    assert plan(ORDER, program(), CONTAINERS).project == "default"
