"""What the engine says unasked, and whether it is there at all. One connection for all containers of a node.

After each new connection everything is compared anew, since events in between are lost. Start at `EngineNews.listen`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from fairlead_agent.runtimes.docker.engine import ENGINE_ERRORS, EngineLink, why
from fairlead_agent.runtimes.docker.streams import EngineRefused, answer, documents

#: Without an event, the containers are compared this often all the same.
COMPARE_S = 60.0

_log = structlog.get_logger()


class EngineNews:
    """Events of the containers that a label names. `heard(container id, action, attributes)`; `compare` lists them."""

    def __init__(
        self, engine: EngineLink, label: str,
        heard: Callable[[str, str, dict[str, str]], None], compare: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._engine = engine
        self._query = {
            "filters": json.dumps({"type": ["container"], "label": [label], "event": ["die", "oom", "kill"]})
        }
        self._heard = heard
        self._compare = compare
        #: Why it was last away; "" while it is there.
        self._said = ""

    async def listen(self) -> None:
        """For ever; an engine that is away is asked again and again."""
        while True:
            try:
                async with answer(self._engine.socket, "GET", "/events", self._query) as reader:
                    if self._engine.outages:
                        await self._engine.learn()
                    await self._compare()
                    self._said = ""
                    async for event in documents(reader):
                        self._event(event)
                reason = "it closed the connection"
            except (*ENGINE_ERRORS, EngineRefused) as error:
                reason = str(error) or type(error).__name__
            if reason != self._said:  # it is asked again and again
                _log.warning("the Docker engine is away; runs are looked at when it is back", reason=reason)
            self._said = reason
            self._engine.outages += 1
            await asyncio.sleep(self._engine.patience.retry_s)

    def _event(self, event: dict[str, Any]) -> None:
        actor = event.get("Actor") or {}
        self._heard(str(actor.get("ID", "")), str(event.get("Action", "")), actor.get("Attributes") or {})

    async def look(self) -> None:
        """For ever: does it still answer? An engine that stands still closes no connection."""
        clock = asyncio.get_running_loop().time
        compared, answers = clock(), True
        while True:
            await asyncio.sleep(self._engine.patience.look_s)
            try:
                await self._engine.call(lambda api: api.ping(), self._engine.patience.look_s)
                if clock() - compared >= COMPARE_S:
                    await self._compare()
                    compared = clock()
                answers = True
            except ENGINE_ERRORS as error:
                if answers:
                    _log.warning("the Docker engine does not answer", reason=why(error))
                answers = False
