"""AccountUpkeep of accounts in the background: last uses are stored, ends are carried out, and rows of crashes are erased.

A request only sets a time in memory; once a minute what has changed is written, a token's use to the hour and a session's to five
minutes. Rows that never came into force, and those of what has ended, go once an hour. All gateways do the same, which is safe.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from fairlead_bus.port import BusError
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.callers import Callers
from fairlead_gateway.access.credentials import SETTLED_NS
from fairlead_gateway.errors import EarlyAnswer
from fairlead_gateway.views.fold import Views
from fairlead_schemas.policies.rights import is_group
from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS

log = structlog.get_logger()

UPKEEP_S = 60.0
#: Seconds until the first round after a start, which reads the names that documents show.
FIRST_S = 1.0
#: Rounds of it between two looks at all rows.
ROUNDS_OF_ERASURE = 60
SESSION_USE_NS = 5 * MINUTE_NS


class AccountUpkeep:
    """Background work of one gateway. `is_ready`: returns True while the views are at the log's end."""

    def __init__(
        self,
        views: Views,
        callers: Callers,
        accounts: Accounts,
        is_ready: Callable[[], bool],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._views = views
        self._callers = callers
        self._accounts = accounts
        self._is_ready = is_ready
        self._clock = clock
        self._idle: set[str] = set()
        accounts.credentials.on_idle = self._idle.add

    async def run(self) -> None:
        """Work without end. An unreachable bus is tried again in the next round."""
        await self._accounts.people.open()
        await self._accounts.credentials.follow(self._callers.forget)
        rounds = 0
        while True:
            await asyncio.sleep(UPKEEP_S if rounds else FIRST_S)
            if not self._is_ready():
                continue
            try:
                await self.store_uses()
                await self.read_names()
                await self.end_idle()
                if rounds % ROUNDS_OF_ERASURE == 1:
                    await self.erase_leftovers()
                rounds += 1
            except (BusError, EarlyAnswer) as error:
                log.warning("upkeep of accounts failed", reason=str(error))

    async def store_uses(self) -> None:
        """Store the last use of each credential in memory that has moved on, and forget those that have ended."""
        self._callers.sweep()
        for caller in self._callers.known():
            step = HOUR_NS if caller.is_token else SESSION_USE_NS
            use = caller.used_ns // step * step if caller.is_token else caller.used_ns
            if use - caller.noted_ns >= step:
                await self._accounts.credentials.used(caller.credential, use)
                caller.noted_ns = use

    async def read_names(self) -> None:
        """Read the names of those whom queue files and idle policies name, which their documents show."""
        for subject, grants in list(self._views.access.access.grants.items()):
            if not is_group(subject) and any(scope.kind == "queue" for _, scope in grants):
                await self._accounts.people.find(subject)
        queues = self._views.queues
        named = {user for pool in queues.pools.values() for user in pool.settings.users}
        for row in queues.existing():
            if row.settings is not None and row.settings.users:
                named |= row.settings.users.keys() | row.users.keys()
        named |= {scope.removeprefix("user:") for scope in self._views.idle.policies}
        for user in sorted(named & self._views.access.kinds.keys()):
            await self._accounts.people.find(user)

    async def end_idle(self) -> None:
        """End the sessions that were found idle for too long."""
        while self._idle:
            await self._accounts.end_session(self._idle.pop(), "expired")

    async def erase_leftovers(self) -> None:
        """Erase rows that mean nothing: of ended tokens and sessions, of used links, and of what a crash has left behind."""
        accounts, access = self._accounts, self._views.access
        tokens = await accounts.credentials.erase_not_in_force("token", access.tokens.__contains__)
        sessions = await accounts.credentials.erase_not_in_force("session", access.sessions.__contains__)
        await accounts.credentials.erase_old_links()
        await accounts.erase_old_sign_ins()
        await accounts.forget_late_records()
        people = 0
        for principal in await accounts.people.principals():
            if principal in access.kinds:
                continue
            row = await accounts.people.find(principal)
            if row is None or row.made_ns < self._clock() - SETTLED_NS:
                await accounts.erase_principal(principal)
                people += 1
        if tokens or sessions or people:
            log.info("rows erased that were not in force", tokens=tokens, sessions=sessions, people=people)
