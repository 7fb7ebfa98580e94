"""A notifier over a log written by hand, on the in-memory bus, and receivers of webhooks on loopback."""

import asyncio
import contextlib
import itertools
import ssl
from typing import Any, NamedTuple, Self

import msgspec

from fairlead_bus.memory import MemoryBus, MemoryHub
from fairlead_bus.port import Message, Unavailable
from fairlead_gateway.notify.allowed_hosts import AllowedHosts
from fairlead_gateway.notify.rules import Rule
from fairlead_gateway.notify.service import Notifier
from fairlead_gateway.notify.settings import NotifySettings
from fairlead_gateway.notify.store import Delivery, RuleStore
from fairlead_gateway.notify.webhook import new_secret
from fairlead_schemas.http.notifications import DeliveryTest
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import GENESIS, commit_hash, encode_commit
from tests.gateway.logbook import START_NS, submitted
from tests.kit.commits import commit_of
from tests.kit.eventually import eventually_async

#: Loopback may be sent to, and what fails is tried again at once.
SETTINGS = NotifySettings(
    allowed=AllowedHosts(networks=("127.0.0.0/8",)), retry_first_s=0.01, retry_most_s=0.02, attempt_s=5.0
)
OK = "200 OK"


class Post(NamedTuple):
    """A request that a receiver got."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """Id of its CloudEvent."""
        return msgspec.json.decode(self.body)["id"]


class Receiver:
    """Receiver of webhooks on a port of loopback. Use `async with Receiver() as receiver`."""

    def __init__(self, answer: str = OK, headers: str = "") -> None:
        """`answer`: status line without the version; "": it never answers."""
        self.answer, self.headers = answer, headers
        self.answer_body = b""
        self.posts: list[Post] = []
        self.connections = 0
        #: Awaited before each answer.
        self.delay_s = 0.0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen, after a stop on the same port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Be away: connections end, and new ones are refused."""
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.close()
            self._server = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/hook?key=hidden"

    @property
    def ids(self) -> list[str]:
        """Ids of the events that it got, in order."""
        return [post.id for post in self.posts]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.posts.append(Post(headers, body))
                await asyncio.sleep(self.delay_s)
                if not self.answer:
                    await asyncio.Event().wait()
                length = f"content-length: {len(self.answer_body)}"
                writer.write(f"HTTP/1.1 {self.answer}\r\n{self.headers}{length}\r\n\r\n".encode() + self.answer_body)
                await writer.drain()
        self._open.discard(writer)
        writer.close()


class NotifyWorld:
    """Use `async with NotifyWorld() as world`; `start` starts the notifier."""

    def __init__(self, **settings: Any) -> None:
        self.hub = MemoryHub()
        self.bus = self.hub.connect()
        self.settings = SETTINGS._replace(**settings)
        self.store = RuleStore(self.hub.connect())
        self._heads: dict[str, tuple[int, str, int]] = {}
        self._jobs = itertools.count(1)
        self._running: list[tuple[Notifier, asyncio.Task[int]]] = []

    async def __aenter__(self) -> Self:
        await self.store.load()
        for person in ("ada", "bob"):
            await self.write(ev.PrincipalAdmitted(cause="cmd:a", principal=person, kind="person"), writer="access")
        return self

    async def __aexit__(self, *_: object) -> None:
        for notifier, task in self._running:
            await notifier.stop()
            ended = await asyncio.gather(task, return_exceptions=True)
            assert ended[0] == 0 or isinstance(ended[0], asyncio.CancelledError), ended

    async def write(self, *events: ev.Event, writer: str = "queue") -> int:
        """Append one commit; return its sequence."""
        n, prev, expected = self._heads.get(writer, (0, GENESIS, 0))
        last = (await self.bus.state(subjects.LOG)).last
        commit = commit_of(
            list(events), writer=writer, n=n + 1, basis=last, at_ns=START_NS + last * SECOND_NS, prev=prev
        )
        payload = encode_commit(commit)
        sequence = await self.bus.append(subjects.LOG, subjects.log(writer), payload, expected=expected)
        self._heads[writer] = (n + 1, commit_hash(payload), sequence)
        return sequence

    async def ended_job(self, user: str = "ada", **fields: Any) -> str:
        """A job that was submitted and cancelled; the id of the event of its end."""
        job = str(next(self._jobs))
        sequence = await self.write(
            submitted(job, user=user, **fields), ev.JobCancelled(cause=f"cmd:e{job}", job=job, by=user)
        )
        return f"{sequence}.1"

    async def rule(self, id_: str, to: str, *kinds: Any, owner: str = "ada", **fields: Any) -> Rule:
        """Store a rule about the ends of the owner's jobs, or about other kinds."""
        after = fields.pop("after", (await self.bus.state(subjects.LOG)).last)
        values = {"channel": "webhook", "secret": new_secret(), **fields}
        rule = Rule(id=id_, owner=owner, to=to, kinds=kinds or ("end",), after=after, **values)
        await self.store.add(rule)
        return rule

    async def start(self, bus: MemoryBus | None = None) -> asyncio.Task[int]:
        """A notifier, and its task."""
        notifier = Notifier(bus or self.hub.connect(), self.settings, name="notifier-1")
        task = asyncio.create_task(notifier.run())
        self._running.append((notifier, task))
        return task

    async def delivery(self, rule: str) -> Delivery:
        """The state of a rule's destination, which must be there."""
        found = await self.store.delivery(rule)
        assert found is not None
        return found

    async def delivery_is(self, rule: str, **fields: int) -> bool:
        """Return True if the state of a rule's destination has these fields."""
        found = await self.store.delivery(rule)
        return found is not None and {name: getattr(found, name) for name in fields} == fields

    async def error_is(self, rule: str, error: str) -> bool:
        """Return True if a rule's destination has failed for this reason."""
        found = await self.store.delivery(rule)
        return found is not None and found.error == error

    async def test(self, rule: str) -> DeliveryTest:
        """Have a test message sent."""
        request = msgspec.json.encode({"id": rule})
        answer = await self.bus.request(subjects.rpc("notifier", "test"), request, timeout_s=30)
        return msgspec.json.decode(answer, type=DeliveryTest)

    async def test_has_failed(self, rule: str, words: str) -> bool:
        """Have a test message sent, and return True if it fails with these words. A notifier that has just started has no rules yet."""
        try:
            return words in (await self.test(rule)).error
        except Unavailable:
            return False

    async def play_telemetry(self, document: dict[str, str]) -> None:
        """Answer questions about jobs by one document."""

        async def answer(message: Message) -> bytes:
            return msgspec.json.encode({**msgspec.json.decode(message.payload), **document})

        await self.hub.connect().serve(subjects.rpc("telemetry", "job"), answer)

    async def in_state(self, rule: str, state: str, error: str | None = None) -> Delivery:
        """Wait until a destination is in a state, with these words of its last failure if any are given, and return it."""

        async def reached() -> Delivery | None:
            found = await self.store.delivery(rule)
            is_there = found is not None and found.state == state and error in (None, found.error)
            return found if is_there else None

        found = await eventually_async(reached, f"{rule} is {state}")
        assert found is not None
        return found
