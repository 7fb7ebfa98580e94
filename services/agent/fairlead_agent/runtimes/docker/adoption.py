"""After a restart of the agent: which containers are the journal's, and which must go. Nothing running is touched.

One list tells of all; only what has ended is asked about by itself. What no journal knows gets one grace, then goes.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import structlog

from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.docker import template
from fairlead_agent.runtimes.docker.container_run import is_running
from fairlead_agent.runtimes.docker.engine import ENGINE_ERRORS, EngineLink
from fairlead_agent.runtimes.port import RuntimeUnfit

#: Which image it was made of.
LABEL_IMAGE = "fairlead.image"
#: Containers of an earlier journal are removed; one that takes longer hangs in the engine or the kernel.
STRANGERS_S = 60.0
STRANGERS_POLL_S = 0.2

_log = structlog.get_logger()


class There(NamedTuple):
    """A container of this node, as the engine lists it."""

    container: str
    name: str
    status: str
    labels: Mapping[str, str]

    @property
    def key(self) -> RunKey | None:
        """The run that it says it is; None where its labels are not ours."""
        label = self.labels
        try:
            return RunKey(
                label[template.LABEL_JOB], int(label[template.LABEL_ATTEMPT]), int(label[template.LABEL_RANK])
            )
        except (KeyError, ValueError):
            return None


class Installation(NamedTuple):
    """Owner of containers: one node's agent in one directory, under one journal."""

    node: str
    directory: str
    incarnation: str

    @property
    def mark(self) -> str:
        """In its containers' names. Journals that follow each other in the directory have the same: a run that one of
        them has started is refused to the next by its name."""
        return hashlib.sha256(f"{self.node}\n{self.directory}".encode()).hexdigest()[:8]


def is_ours(there: There, whose: Installation, epochs: Mapping[RunKey, int | None]) -> bool:
    """True for a container of a run that the journal holds open: by its journal, its name and its epoch."""
    key = there.key
    if key is None or key not in epochs or there.labels.get(template.LABEL_INCARNATION) != whose.incarnation:
        return False
    # Older agents made them without a mark; what runs is adopted all the same.
    names = [template.container_name(key, gang, mark) for gang in (False, True) for mark in (whose.mark, "")]
    wanted = epochs[key]
    return there.name in names and (wanted is None or there.labels.get(template.LABEL_EPOCH) == str(wanted))


async def list_all(engine: EngineLink, whose: Installation) -> list[There]:
    """Every container of this installation, whatever its journal. Raises ENGINE_ERRORS."""
    filters = {"label": [f"{template.LABEL_NODE}={whose.node}", f"{template.LABEL_DIRECTORY}={whose.directory}"]}
    listed: list[dict[str, Any]] = await engine.call(lambda api: api.containers(all=True, filters=filters))
    return [There(c["Id"], (c["Names"] or [""])[0].lstrip("/"), c["State"], c["Labels"] or {}) for c in listed]


async def end_others(engine: EngineLink, whose: Installation, epochs: Mapping[RunKey, int | None]) -> list[There]:
    """TERM, one grace and KILL to all that is not the journal's; what is. Raises RuntimeUnfit where something stays."""
    there = await list_all(engine, whose)
    others = [each for each in there if not is_ours(each, whose, epochs)]
    running = [each.container for each in others if is_running(each.status)]
    if running:
        _log.warning("containers that are in no journal are ended", containers=[each.name for each in others])
        await _each(engine, running, lambda api, container: api.kill(container, "SIGTERM"))
        await _until_ended(engine, whose, set(running))
    try:
        async with asyncio.timeout(STRANGERS_S):
            while others:
                await remove(engine, (each.container for each in others))
                gone = {each.container for each in others}
                others = [each for each in await list_all(engine, whose) if each.container in gone]
                if others:
                    await asyncio.sleep(STRANGERS_POLL_S)
    except TimeoutError as error:
        raise RuntimeUnfit(
            f"these containers run without a journal in {whose.directory} and cannot be removed: "
            f"{', '.join(each.name for each in others)}; the node cannot be used before they are gone: remove them, or "
            "reboot the node"
        ) from error
    return [each for each in there if is_ours(each, whose, epochs)]


async def remove(engine: EngineLink, containers: Iterable[str]) -> None:
    """Remove the containers in any state; a container that cannot be removed stays."""
    await _each(engine, list(containers), lambda api, container: api.remove_container(container, v=True, force=True))


async def _until_ended(engine: EngineLink, whose: Installation, containers: set[str]) -> None:
    grace_s = engine.patience.orphan_grace_s
    while grace_s > 0:
        await asyncio.sleep(STRANGERS_POLL_S)
        grace_s -= STRANGERS_POLL_S
        if not any(is_running(each.status) for each in await list_all(engine, whose) if each.container in containers):
            return


async def _each(engine: EngineLink, containers: Collection[str], do: Any) -> None:
    async def one(container: str) -> None:
        try:
            await engine.call(lambda api: do(api, container))
        except ENGINE_ERRORS as error:  # gone already; or the list after this shows it again
            _log.info("a container is left as it is", container=container[:12], reason=str(error))

    await asyncio.gather(*map(one, containers))
