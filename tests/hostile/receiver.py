"""A webhook's receiver that is away under load while the notifier is killed: it gets every event once, in order, signed.

The receiver refuses connections for the given time, then listens again; no further action is taken. What it got is held against the
log. A message may come a second time after a kill, directly after the first and under its id. Start at `_one`.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from fairlead.stack import state
from fairlead_bus.log import LogReader
from fairlead_bus.nats.adapter import connect
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from tests.hostile.load import Load
from tests.hostile.outcome import Row, check_load, joined, row
from tests.hostile.stack import Stack

AWAY_S = 600.0
BRIEFLY_S = 8.0
#: The load's share of the time away: what happens must fit into a round that also waits for it.
LOAD_S = 60.0
#: Longest pause between two attempts, and time to send what has gathered.
CAUGHT_UP_S = 420.0
#: The process that the notifier is in, on one machine.
HOST = "telemetry"
ENDS = (ev.JobSucceeded, ev.JobFailed, ev.JobCancelled)


class Post(NamedTuple):
    """One message as it came."""

    id: str
    signed: bool


class Receiver:
    """HTTP server on loopback that can go away and come back on its port."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.key = b""
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Address that a rule is given."""
        return f"http://127.0.0.1:{self._port}/hook"

    def start(self) -> None:
        """Listen, after a stop on the same port."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def stop(self) -> None:
        """Be away: connections are refused."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def take(self, headers: "dict[str, str]", body: bytes) -> None:
        """Keep a message with the verdict on its signature."""
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = "v1," + base64.b64encode(hmac.digest(self.key, signed, hashlib.sha256)).decode()
        self.posts.append(Post(json.loads(body)["id"], hmac.compare_digest(expected, headers["webhook-signature"])))


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One message a connection: a receiver that goes away keeps none open."""

        def do_POST(self) -> None:  # the base class names it so
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.take({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(204)
            self.send_header("connection", "close")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    return Handler


def away_long(directory: Path, tries: int, seed: int) -> list[Row]:
    """Let the receiver be away for 10 minutes, `tries` times."""
    return joined([found for number in range(tries) for found in _one(directory / f"away-{number}", AWAY_S)])


def away_briefly(directory: Path, tries: int, seed: int) -> list[Row]:
    """Let the receiver be away for seconds, `tries` times."""
    return joined([found for number in range(tries) for found in _one(directory / f"away-{number}", BRIEFLY_S)])


def _one(place: Path, away_s: float) -> list[Row]:
    stack = Stack(place / "data", environment={"FAIRLEAD_NOTIFY_NETWORKS": "127.0.0.0/8"})
    load, hook = Load(stack, place / "jobs", threads=1), Receiver()
    try:
        stack.up()
        hook.start()
        words = (
            "notify",
            "add",
            "--webhook",
            hook.url,
            "--on",
            "end",
            "--scope",
            "cluster",
            "--elements",
            "-o",
            "json",
        )
        made = json.loads(stack.fairlead(*words).stdout)
        hook.key = base64.b64decode(made["secret"].removeprefix("whsec_"))
        load.start()
        stack.until(lambda: len(hook.posts) > 3, "the first messages have come")
        hook.stop()
        before, began = len(hook.posts), time.monotonic()
        time.sleep(min(away_s / 2, LOAD_S))
        kills = int(stack.signal(HOST, signal.SIGKILL))
        time.sleep(min(away_s / 2, LOAD_S))
        load.stop()
        time.sleep(max(0.0, away_s - (time.monotonic() - began)))
        away = time.monotonic() - began
        hook.start()
        stack.until(lambda: len(hook.posts) > before, "messages come again", CAUGHT_UP_S)
        kills += int(stack.signal(HOST, signal.SIGKILL))
        # The process is back when its messages come, and only then can its state be asked for.
        stack.until(
            lambda: _ids(hook) >= set(asyncio.run(_ends(stack))), "the notifier sends again", CAUGHT_UP_S, look_s=1.0
        )
        rows = check_load("receiver", stack, load)
        expected = asyncio.run(_ends(stack))
        with contextlib.suppress(AssertionError):  # what is missing is told below
            stack.until(lambda: _ids(hook) >= set(expected), "all have come", CAUGHT_UP_S)
        what = f"webhook's receiver away for {away:.0f} s under load, the notifier's process killed {kills} times"
        notes = f"{len(hook.posts)} messages for {len(expected)} events"
        return [row("receiver", what, len(expected), broken(hook.posts, expected, kills), notes), *rows]
    finally:
        load.stop()
        hook.stop()
        stack.end()


def _ids(hook: Receiver) -> set[str]:
    return {post.id for post in hook.posts}


def broken(posts: list[Post], expected: list[str], kills: int) -> list[str]:
    """Return what is wrong with the messages: not signed, missing, more than the log has, doubled or out of order."""
    wrong = [f"{post.id}: its signature is wrong" for post in posts if not post.signed]
    came = [post.id for post in posts]
    once = [each for at, each in enumerate(came) if not at or came[at - 1] != each]
    missing, more = set(expected) - set(came), set(came) - set(expected)
    wrong += [f"{each}: never came" for each in sorted(missing)] + [f"{each}: not in the log" for each in sorted(more)]
    if len(came) - len(once) > kills:
        wrong.append(f"{len(came) - len(once)} messages came twice after {kills} kills")
    if once != expected and not missing and not more:
        wrong.append("the messages came in another order than in the log, or twice apart")
    return wrong


async def _ends(stack: Stack) -> list[str]:
    """Read the ids of all ends of jobs from the log."""
    there = state.load(stack.data)
    assert there is not None
    bus, found = await connect(there.nats_url, name="hostile"), list[str]()
    try:
        end = (await bus.state(subjects.LOG)).last
        reader = LogReader(bus)
        while reader.chain.last < end:
            for folded in await asyncio.wait_for(reader.next(), 30):
                events = enumerate(folded.commit.events)
                found += [f"{folded.seq}.{index}" for index, event in events if isinstance(event, ENDS)]
        await reader.close()
    finally:
        await bus.close()
    return found
