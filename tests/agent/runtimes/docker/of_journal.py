"""Containers of one agent's journal on the machine's engine."""

import asyncio
from typing import Any

import docker

from fairlead_agent.runtimes.docker.template import LABEL_INCARNATION
from tests.kit.eventually import eventually_async


def containers(incarnation: str, *, ended: bool = True) -> list[dict[str, Any]]:
    """As the engine lists them; those that have ended only if asked for."""
    client = docker.APIClient(version="auto")
    try:
        return client.containers(all=ended, filters={"label": f"{LABEL_INCARNATION}={incarnation}"})
    finally:
        client.close()


async def until_gone(incarnation: str, *, ended: bool = True) -> None:
    """Wait until none is left (that runs)."""

    async def gone() -> bool:
        return not await asyncio.to_thread(containers, incarnation, ended=ended)

    await eventually_async(gone, f"no container of {incarnation} is left", look_s=0.05)
