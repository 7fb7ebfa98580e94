"""People's SQL over the morning's warehouse, asked in a word."""

import json
from pathlib import Path

from fairlead_schemas.queries.telemetry import ANONYMOUS_ADMIN, QueryCaller
from fairlead_telemetry.sql.query_pool import QueryPool
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import Story, morning

#: Longer than any query here takes, on any machine.
LONG_S = 60.0
#: Would go on for ever.
#: No join condition that a hash table could serve: 10^12 pairs are looked at one by one.
ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE hash(a.range, b.range) = 1"


class House:
    """A desk over the warehouse of a story."""

    def __init__(self, directory: Path, deadline_s: float = LONG_S, story: Story | None = None) -> None:
        self.directory = directory
        self.warehouse = Warehouse(directory)
        store(self.warehouse, story or morning())
        self.desk = QueryPool(
            directory,
            copy_to=self.copy_to,
            version=lambda: self.warehouse.version,
            deadline_s=deadline_s,
            wait_s=LONG_S,
        )

    async def copy_to(self, target: Path) -> None:
        self.warehouse.copy_to(target)

    async def raw(self, query: str, caller: QueryCaller = ANONYMOUS_ADMIN, **more: object) -> bytes:
        asked = {"caller": {"user": caller.user, "role": caller.role, "projects": caller.projects}, "query": query}
        return await self.desk.ask(json.dumps(asked | more).encode())

    async def ask(self, query: str, caller: QueryCaller = ANONYMOUS_ADMIN, **more: object) -> dict:
        return json.loads(await self.raw(query, caller, **more))

    async def rows(self, query: str, caller: QueryCaller = ANONYMOUS_ADMIN) -> list[list[object]]:
        answer = await self.ask(query, caller)
        assert "error" not in answer, answer
        return answer["rows"]

    async def code(self, query: str, caller: QueryCaller = ANONYMOUS_ADMIN, **more: object) -> str:
        """The error's code, or "" for an answer."""
        return (await self.ask(query, caller, **more)).get("error", {}).get("code", "")

    async def cancel(self, name: str, caller: QueryCaller = ANONYMOUS_ADMIN) -> bool:
        asked = {"caller": {"user": caller.user, "role": caller.role}, "id": name}
        return json.loads(await self.desk.cancel(json.dumps(asked).encode()))["cancelled"]

    async def close(self) -> None:
        await self.desk.close()
        self.warehouse.close()
