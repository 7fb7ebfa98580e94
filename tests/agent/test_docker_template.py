"""The one shape of a container: what it says, and that the engine has really made it so."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_agent.run import Exit, RunKey
from fairlead_agent.runtimes import docker_template as template
from tests.agent.runtime_watch import Watch, launch

NAMES = st.sampled_from(
    ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "PATH", "X"]
)


@given(st.dictionaries(NAMES, st.text("abc", max_size=3)), st.integers(0, 10**6), st.integers(0, 10**5))
def test_no_job_changes_the_shape(env: dict[str, str], memory: int, cpu: int) -> None:
    """Whatever a job file says, the container stays unprivileged and sees no GPU that it was not granted."""
    run = launch("7", "true", image="x", env=env, memory_mib=memory, cpu_milli=cpu)
    config = template.host_config(run, template.Engine(), "none", "")
    assert (config["Privileged"], config["CapDrop"], config["SecurityOpt"]) == (False, ["ALL"], ["no-new-privileges"])
    assert config["ReadonlyRootfs"] and config["Memory"] == config["MemorySwap"] > 0 and config["Binds"] == []
    made = template.environment(run, "none")
    assert made["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "LD_PRELOAD" not in made and "CUDA_VISIBLE_DEVICES" not in made


def test_gpus_go_in_by_the_best_way_there_is() -> None:
    """CDI where it lists every device, else a request by UUID, else nothing for played ones."""
    engine = template.Engine(cdi_devices=frozenset({"nvidia.com/gpu=GPU-a"}))
    assert template.gpu_path([], False, engine) == "none"
    assert template.gpu_path(["GPU-a"], True, engine) == "simulated"
    assert template.gpu_path(["GPU-a"], False, engine) == "cdi"
    assert template.gpu_path(["GPU-a", "GPU-b"], False, engine) == "device-request"


@pytest.mark.docker
async def test_a_container_can_do_nothing_it_should_not(tmp_path: Path) -> None:
    """Mounting, writing the root file system and raising privileges fail; /tmp can be written."""
    from fairlead_agent.runtimes.docker import DockerRuntime
    from tests.agent.docker_image import ensure_image

    runtime, watch = DockerRuntime(tmp_path, "n1", "inc-template", simulated=True), Watch()
    await runtime.open(watch)
    script = "touch /x && echo root; mount -t tmpfs t /proc && echo mount; touch /tmp/y && echo tmp; exit 0"
    runtime.start(launch("7001", "sh", "-c", script, image=ensure_image()))
    key = RunKey("7001", 1, 0)
    assert await watch.exit_of(key) == Exit(code=0)
    assert runtime.output(key)[0].read_text().split() == ["tmp"]
    await runtime.adopt([])
    await runtime.close()
