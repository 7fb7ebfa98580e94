"""One command line and two clusters with sign-on: contexts, sign-ins and tokens of one never reach the other."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.gateway.access.accounts_world import PASSWORD
from tests.gateway.access.served_world import ServedWorld

#: Verbs that need no more than a gateway with a queue.
READS = (
    *("whoami", "jobs", "queues", "nodes", "events", "idle", "rollout", "maintenance", "breaker", "context list"),
    *("access list", "people list", "service-accounts list", "tokens list", "audit access", "notify list"),
)


class Machine:
    """One person's machine, with a folder for settings."""

    def __init__(self, home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
        self._env = {**kept, "XDG_CONFIG_HOME": str(home), "NO_COLOR": "1"}

    async def run(self, line: str, *, stdin: str = "", **settings: str) -> tuple[int, str]:
        """Run `fairlead LINE`; its exit code and all that it prints."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fairlead",
            *line.split(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self._env, **settings},
        )
        async with asyncio.timeout(60):
            printed, _ = await process.communicate(stdin.encode())
        return process.returncode or 0, printed.decode()


async def _signed_in(machine: Machine, east: ServedWorld, west: ServedWorld) -> None:
    for name, world, login in (("east", east, "eva"), ("west", west, "wim")):
        await world.person(login, PASSWORD, admin="cluster")
        code, printed = await machine.run(f"--context {name} login --local {login} {world.url}", stdin=PASSWORD + "\n")
        assert code == 0, printed


@pytest.mark.slow
async def test_every_verb_goes_to_the_cluster_that_is_named(tmp_path: Path) -> None:
    """By --context, by FAIRLEAD_CONTEXT, and by the current context; a job is only where it was submitted. No credential goes elsewhere: a
    gateway notes every token that it does not know.
    """
    machine = Machine(tmp_path)
    async with ServedWorld(queue=True) as east, ServedWorld(queue=True) as west:
        await _signed_in(machine, east, west)
        for name, login in (("east", "eva"), ("west", "wim")):
            assert (await machine.run(f"--context {name} whoami -o name")) == (0, f"{login}\n")
            assert (await machine.run("whoami -o name", FAIRLEAD_CONTEXT=name)) == (0, f"{login}\n")
            code, printed = await machine.run(f"--context {name} submit --name job-of-{name} -- true")
            assert code == 0, printed
        names = [[row.name for row in world.gateway.views.jobs.rows.values()] for world in (east, west)]
        assert names == [["job-of-east"], ["job-of-west"]]
        for name, other in (("east", "west"), ("west", "east")):
            assert (await machine.run(f"context use {name}"))[0] == 0
            code, printed = await machine.run("jobs")
            assert f"job-of-{name}" in printed and f"job-of-{other}" not in printed, printed
            assert (await machine.run("whoami -o name"))[1] == {"east": "eva\n", "west": "wim\n"}[name]
        failed = [
            (name, verb, printed)
            for verb in READS
            for name in ("east", "west")
            for code, printed in [await machine.run(f"--context {name} {verb}")]
            if code
        ]
        assert not failed, failed
        # A job's number says nothing about its cluster.
        assert (await machine.run("--context west cancel 1"))[0] == 0
        states = [world.gateway.views.jobs.rows["1"].state for world in (east, west)]
        assert [state in ("cancelled", "stopping") for state in states] == [False, True]
        for world in (east, west):
            await world.gateway.trail.flush()
            unknown = (await world.ask("GET", "/v1/audit/access?about=unknown"))["items"]
            assert [each for each in unknown if each["kind"] == "token_refused"] == []


@pytest.mark.slow
async def test_a_sign_in_of_one_cluster_counts_for_nothing_at_another(tmp_path: Path) -> None:
    """Its token is refused there, also a service account's; signing out of one leaves the other signed in."""
    machine = Machine(tmp_path)
    async with ServedWorld() as east, ServedWorld() as west:
        await _signed_in(machine, east, west)
        await west.ask("GET", "/v1/whoami", token=east.owner, status=401)
        code, printed = await machine.run("--context west whoami", FAIRLEAD_TOKEN=east.owner)
        assert code != 0 and "not one that the gateway knows" in printed
        assert (await machine.run("--context east logout"))[0] == 0
        assert (await machine.run("--context east whoami"))[0] != 0
        assert (await machine.run("--context west whoami -o name")) == (0, "wim\n")


@pytest.mark.slow
async def test_two_people_at_one_cluster_have_two_contexts(tmp_path: Path) -> None:
    """Both contexts have one address; the one that is named counts, not the current one."""
    machine = Machine(tmp_path)
    async with ServedWorld() as world:
        for name in ("ann", "bob"):
            await world.person(name, PASSWORD)
            code, printed = await machine.run(
                f"--context {name} login --local {name} {world.url}", stdin=PASSWORD + "\n"
            )
            assert code == 0, printed
        for name in ("ann", "bob"):
            assert (await machine.run(f"--context {name} whoami -o name")) == (0, f"{name}\n")
        assert (await machine.run("whoami -o name")) == (0, "bob\n"), "the last one that signed in"
