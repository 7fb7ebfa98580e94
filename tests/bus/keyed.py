"""A real nats-server with an account and a key for each user, as an installation has it."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

from fairlead_bus import bus_users, nkey
from fairlead_bus.bus_users import UserKind
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.permissions import SERVICES
from tests.kit.nats_server import NatsServer


class Users:
    """The users of a bus: their directory and each one's key. `remove` removes both."""

    def __init__(self, *nodes: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="fairlead-keys-"))
        self.keys: dict[str, nkey.KeyPair] = {}
        for name in SERVICES:
            self.add("service", name)
        for name in nodes:
            self.add("node", name)

    @property
    def include(self) -> str:
        """The line of a server's configuration that makes it know these users."""
        return f'include "../{self.directory.name}/{bus_users.ACCOUNTS}"'

    def add(self, kind: UserKind, name: str) -> nkey.KeyPair:
        """A (further) key of a user; the server hears of it by `reload`."""
        pair = self.keys[name] = nkey.generate()
        bus_users.change(self.directory, lambda users: bus_users.with_key(users, kind, name, pair.public))
        nkey.write_file(self.seed_file(name), pair, name)
        return pair

    def seed_file(self, name: str) -> Path:
        """Return the path of a user's seed."""
        return self.directory / f"{name.replace('*', 'all')}.nk"

    def remove(self) -> None:
        """Remove the directory with all keys."""
        shutil.rmtree(self.directory, ignore_errors=True)


class Keyed(Users):
    """A server that knows the users. `close` ends it and removes everything."""

    def __init__(self, *nodes: str) -> None:
        super().__init__(*nodes)
        self.server = NatsServer(extra=self.include)
        self.server.start()
        os.environ["FAIRLEAD_NATS_MONITOR"] = self.server.monitor

    def reload(self) -> None:
        """Reload the users, like `nats-server --signal reload`."""
        os.kill(self.server.pid, signal.SIGHUP)

    async def connect(self, name: str) -> NatsBus:
        """A connection of this user."""
        return await connect(self.server.url, name=name, key=self.keys[name])

    async def make_streams(self) -> None:
        """As `python -m fairlead_bus` does."""
        bus = await self.connect("streams")
        await bus.ensure()
        await bus.close()

    def close(self) -> None:
        """End the server and remove everything."""
        self.server.close()
        self.remove()
