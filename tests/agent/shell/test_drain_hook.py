"""A program for drained nodes: started once per drain on an idle node, by an agent that ends; the next one waits for its end."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead_agent.linux import machine
from fairlead_agent.settings import from_environment
from fairlead_agent.shell.drain_hook import Round, load, log_file, save, until_over
from fairlead_bus.environment_settings import BadSetting
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import Desired, Drained, RunOrder, encode_desired
from fairlead_schemas.wire.reports import HealthSeen, StartSeen
from tests.agent import sleepers
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld

#: A bound of the tests, not a promise.
LONG_S = 60.0
ROLLOUT = Drained(cause="cmd:r1", setter="rollout", reason="rollout driver-580")


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


class Drains(AgentWorld):
    """A node whose agent has such a program."""

    async def say(self, drained: Drained | None, *orders: RunOrder) -> None:
        """The node's desired state, as the placer writes it."""
        self.placer.sequence += 1
        value = Desired(
            node="n1",
            incarnation=self.placer.incarnation["n1"],
            sequence=self.placer.sequence,
            runs=list(orders),
            drained=drained,
        )
        await self.placer.bus.put(subjects.DESIRED, "n1", encode_desired(value))

    async def left(self) -> int:
        """The exit code of the agent, which ends by itself."""
        _, task = self.agents.pop()
        return await asyncio.wait_for(task, LONG_S)

    async def next(self) -> None:
        """The next agent process, as `python -m fairlead_agent` begins it."""
        await until_over(self.settings, machine.boot_id())
        await self.start()

    def health(self) -> list[tuple[str, bool, str]]:
        return [
            (seen.code, seen.over, seen.evidence) for seen in self.placer.of(HealthSeen) if seen.code == "drained_hook"
        ]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Drains]:
    """A joined node; its program is `hook` in the test's directory, which the test writes."""
    world = Drains(tmp_path / "data")
    world.settings = msgspec.structs.replace(world.settings, drained_hook=tmp_path / "hook")
    await world.open()
    yield world
    await world.close()


async def test_the_hook_runs_once_with_its_reason_and_without_a_second_agent(node: Drains, tmp_path: Path) -> None:
    """The next agent waits for its end; a repeated order for the same drain starts nothing, another drain does."""
    seen, go = tmp_path / "seen", tmp_path / "go"
    program(
        tmp_path / "hook",
        f'while [ ! -e {go} ]; do sleep 0.05; done; echo "$FAIRLEAD_NODE $FAIRLEAD_DRAINED_BY $FAIRLEAD_DRAINED_FOR" >>{seen}',
    )
    await node.say(ROLLOUT)
    assert await node.left() == 0
    assert not seen.exists()
    go.touch()
    await node.next()
    assert seen.read_text() == "n1 rollout rollout driver-580\n"
    await node.say(ROLLOUT)
    await asyncio.sleep(0.5)
    assert not node.agents[-1][1].done()
    await node.say(None)
    await node.say(msgspec.structs.replace(ROLLOUT, cause="cmd:r2"))
    assert await node.left() == 0
    await node.next()
    assert len(seen.read_text().splitlines()) == 2
    assert node.health() == []


async def test_it_waits_until_nothing_runs(node: Drains, tmp_path: Path) -> None:
    """A run that the placer takes for ended, and is not, is waited for."""
    seen = tmp_path / "seen"
    program(tmp_path / "hook", f"touch {seen}")
    job = order("7", "sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    await node.placer.desire("n1", job)
    await node.placer.until(lambda: bool(node.placer.of(StartSeen, "7")))
    await node.say(ROLLOUT, job)
    await asyncio.sleep(0.5)
    assert not seen.exists() and not node.agents[-1][1].done()
    (tmp_path / "go").touch()
    await node.ended("7")
    await node.say(ROLLOUT)
    assert await node.left() == 0


async def test_a_failure_is_the_nodes_ailment_until_it_is_returned(node: Drains, tmp_path: Path) -> None:
    """With the program's last line."""
    program(tmp_path / "hook", "echo 'no such package' >&2; exit 100")
    await node.say(ROLLOUT)
    await node.left()
    await node.next()
    await node.say(ROLLOUT)
    await node.placer.until(lambda: bool(node.health()))
    assert node.health() == [("drained_hook", False, "it returned 100: no such package")]
    await node.say(None)
    await node.placer.until(lambda: len(node.health()) == 2)
    assert node.health()[1][:2] == ("drained_hook", True)


async def test_one_that_takes_too_long_is_killed(node: Drains, tmp_path: Path) -> None:
    """With all that it has started."""
    node.settings = msgspec.structs.replace(node.settings, drained_hook_s=0.5)
    program(tmp_path / "hook", f"sleep {sleepers.own('31')}")
    await node.say(ROLLOUT)
    await node.left()
    await asyncio.wait_for(until_over(node.settings, machine.boot_id()), LONG_S)
    found = load(node.settings)
    assert found is not None and (found.over, found.failure) == (True, "it was killed after 0.5 s")
    await sleepers.until_gone("31")


async def hook_over(node: Drains) -> Round:
    """Return the hook of a drain that was requested and is over."""
    await node.say(ROLLOUT)
    await node.left()
    await until_over(node.settings, machine.boot_id())
    found = load(node.settings)
    assert found is not None
    return found


async def test_after_a_boot_it_is_over(node: Drains, tmp_path: Path) -> None:
    """It may have booted the machine; it is not started again for the same drain."""
    program(tmp_path / "hook", "true")
    began = await hook_over(node)
    save(node.settings, msgspec.structs.replace(began, over=False, boot_id="another"))
    await node.next()
    await node.say(ROLLOUT)
    await asyncio.sleep(0.3)
    assert not node.agents[-1][1].done()
    assert node.health() == []


async def test_an_unobserved_end_is_reported(node: Drains, tmp_path: Path) -> None:
    """Killed with its wrapper; or without evidence that it began."""
    program(tmp_path / "hook", "sleep 0.2")
    began = await hook_over(node)
    (node.settings.directory / "drained.exit").unlink()
    for process, words in ((began.process, "its end was not seen"), ((0, 0), "whether it ran is not known")):
        save(node.settings, msgspec.structs.replace(began, over=False, process=process))
        await until_over(node.settings, machine.boot_id())
        found = load(node.settings)
        assert found is not None and words in found.failure


async def test_a_program_that_cannot_be_started_is_reported(node: Drains, tmp_path: Path) -> None:
    """Its interpreter is missing."""
    (tmp_path / "hook").write_text("#!/nowhere\n")
    (tmp_path / "hook").chmod(0o755)
    await node.say(ROLLOUT)
    await node.left()
    await until_over(node.settings, machine.boot_id())
    found = load(node.settings)
    assert found is not None and found.failure.startswith("it returned 12")
    assert "hook" in log_file(node.settings).read_text() or "nowhere" in log_file(node.settings).read_text()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "expected a program, found none"),
        (lambda path: path.touch(0o644), "can be executed"),
        (lambda path: (path.touch(), path.chmod(0o777)), "only root or the agent's user can write"),
        (lambda path: path.mkdir(), "can be executed"),
    ],
)
def test_a_setting_that_is_wrong_is_refused(tmp_path: Path, make: object, says: str) -> None:
    """Before anything starts."""
    make(tmp_path / "hook")  # type: ignore[operator]
    with pytest.raises(BadSetting, match=f"FAIRLEAD_DRAINED_HOOK: .*{says}"):
        from_environment({**os.environ, "FAIRLEAD_NODE": "n1", "FAIRLEAD_DRAINED_HOOK": str(tmp_path / "hook")})


def test_the_kept_state_is_small_and_readable(tmp_path: Path) -> None:
    """For a user on the node."""
    settings = from_environment({"FAIRLEAD_NODE": "n1", "FAIRLEAD_DATA": str(tmp_path)})
    settings.directory.mkdir()
    assert load(settings) is None
    (settings.directory / "drained.json").write_text("{")
    assert load(settings) is None
    (settings.directory / "drained.json").write_text(json.dumps({"cause": "c", "boot_id": "b", "begun_ns": 1}))
    assert load(settings) is not None
