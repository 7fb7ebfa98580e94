"""MPI daemons without ssh. mpirun on rank 0 calls daemon.sh, which sends a request to its node's agent through a pipe. The
agent sends the command to the target node's agent, and the waiting rank there runs it. The exit code comes back the
same way.

Only the pipes outlive a daemon's start: a restarted agent opens them again, and finds there the data written meanwhile.
Data from a pipe comes from the run's own programs, and can do no more than they can: start programs in the other ranks
of the same run.

Box of a run: a directory next to the run with the files that a launcher needs inside it. The box is read-only to
containers, since a pipe can be written through all the same.

    <data>/launch/<run>/order             the agent's own note, for its next process
    <data>/launch/<run>/box/hostfile      nodes and slots, as MPI reads them
                           /nodes         name, address and slots of each node
                           /daemon.sh wait.sh processes.sh output.sh
                           /slurm/        srun and scontrol of the launcher slurm
                           /up            pipe: scripts to the agent
                           /down          pipe: the agent to wait.sh
                           /ends          pipe: processes.sh's children to itself
                           /out err       pipes: a program's output to output.sh's copies
                           /wake.<host>   pipe: the agent to daemon.sh, for each node
                           /run.<id> answer.<id>    a command, and the exit code that it ended with

The directory above belongs to the agent's user alone; any user of a container may read the files in the box.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fairlead_agent.core.runs import RunKey, key_of
from fairlead_bus.port import Bus, Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.rank_rpc import (
    COMMAND_BYTES_MAX,
    DaemonEnded,
    DaemonWanted,
    GangAnswer,
    GangCall,
    decode_answer,
    encode_gang,
)

SCRIPTS = Path(__file__).parent / "scripts"


def fill(box: Path, *, hosts: Sequence[str], hostfile: str, nodes: str = "") -> None:
    """Make it, with pipes for each of `hosts` (addresses and names of nodes). Raises OSError; FileExistsError where the run has one
    already.
    """
    box.mkdir(parents=True)
    box.parent.chmod(0o700)
    box.chmod(0o755)
    put(box / "hostfile", hostfile)
    put(box / "nodes", nodes)
    (box / "slurm").mkdir(mode=0o755)
    for script in (each for each in SCRIPTS.rglob("*") if each.is_file()):
        copy = box / script.relative_to(SCRIPTS)
        shutil.copyfile(script, copy)
        copy.chmod(0o555)
    for name in ("up", "down", "ends", "out", "err", *dict.fromkeys(f"wake.{host}" for host in hosts)):
        os.mkfifo(box / name)
        (box / name).chmod(0o666)  # a container's user is another


def put(path: Path, text: str) -> None:
    """A file of the box that is there whole or not at all."""
    new = path.with_name(f".{path.name}")
    new.write_text(text)
    new.chmod(0o644)
    new.rename(path)


READ_BYTES = 65536
LINE_BYTES_MAX = 4096
#: Commands of one run that have begun to come in and are not whole.
OPEN_MAX = 4096
ID_MAX = 2**62
ANSWER_S = 5.0
AGAIN_S = 0.2
#: Time for which requests to another node's agent are repeated, to start a daemon or to report an end: an
#: agent may be away for a restart.
TRIED_S = 120.0
#: As ssh says that it could not.
COULD_NOT = 255

_log = structlog.get_logger()


class _Line:
    """The pipes of one run here."""

    def __init__(self, order: RunOrder, box: Path) -> None:
        self.order, self.box = order, box
        self.fds: dict[str, int] = {}
        self.rest = b""
        self.pieces: dict[int, str] = {}
        #: Commands that this rank was sent.
        self.seen: set[int] = set()
        #: {command of rank 0: the host that it is for}
        self.hosts: dict[int, str] = {}

    def pipe(self, name: str) -> int:
        """Return the pipe's descriptor, open for both ways, so that both the agent and the other end always find a peer."""
        if name not in self.fds:
            self.fds[name] = os.open(self.box / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return self.fds[name]

    def write(self, name: str, text: str) -> None:
        with contextlib.suppress(BlockingIOError):  # full: the queue was unread for thousands of lines
            os.write(self.pipe(name), text.encode())

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)
        self.fds.clear()


def rank_of(order: RunOrder, host: str) -> int:
    """Return the rank of a node by its name or address, 0 if it is no other node of the run. Several simulated nodes may have one
    address; their names differ.
    """
    names = order.nodes if host in order.nodes else order.hosts
    return names.index(host, 1) if host in names[1:] else 0


class Daemons:
    """The lines of one node's MPI runs."""

    def __init__(self, bus: Bus, node: str, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._bus, self._node, self._spawn = bus, node, spawn
        self._lines: dict[RunKey, _Line] = {}

    def open(self, order: RunOrder, box: Path) -> None:
        """The run's box is there. Raises OSError."""
        line = _Line(order, box)
        self._lines[key_of(order)] = line
        line.pipe("down")
        asyncio.get_running_loop().add_reader(line.pipe("up"), self._readable, line)

    def over(self, key: RunKey) -> None:
        """The run has ended."""
        line = self._lines.pop(key, None)
        if line is not None:
            for host in line.hosts.values():  # whose daemon.sh still waits for its end
                with contextlib.suppress(OSError):
                    line.write(f"wake.{host}", "over\n")
            self._let_go(line)

    def close(self) -> None:
        """Close all pipes; the runs continue."""
        for line in self._lines.values():
            self._let_go(line)
        self._lines.clear()

    def _let_go(self, line: _Line) -> None:
        asyncio.get_running_loop().remove_reader(line.pipe("up"))
        line.close()

    # ------------------------------------------------------------------ what the run's own scripts say

    def _readable(self, line: _Line) -> None:
        with contextlib.suppress(BlockingIOError):
            line.rest += os.read(line.pipe("up"), READ_BYTES)
        *lines, line.rest = line.rest.split(b"\n")
        line.rest = line.rest[:LINE_BYTES_MAX]
        for text in lines:
            what, _, rest = text.decode(errors="surrogateescape").partition(" ")
            number, _, value = rest.partition(" ")
            if number.isascii() and number.isdecimal() and int(number) <= ID_MAX:
                self._handle(line, what, int(number), value)

    def _handle(self, line: _Line, what: str, number: int, value: str) -> None:
        match what:
            case "piece":
                whole = line.pieces.get(number, "") + value
                if len(whole) <= COMMAND_BYTES_MAX and (number in line.pieces or len(line.pieces) < OPEN_MAX):
                    line.pieces[number] = whole
                else:
                    line.pieces.pop(number, None)
            case "run":
                self._spawn(self._start(line, number, value, line.pieces.pop(number, "")))
            case "ended" if line.order.rank and number in line.seen and value.isdecimal():
                order = line.order
                call = DaemonEnded(
                    job=order.job,
                    attempt=order.attempt,
                    epoch=order.epoch,
                    rank=order.rank,
                    id=number,
                    code=int(value) % 256,
                )
                self._spawn(self._tell_end(line, call))
            case _:
                pass

    async def _start(self, line: _Line, number: int, host: str, command: str) -> None:
        order = line.order
        rank = rank_of(order, host)
        if order.rank or not rank or not command:
            return self._answer(line, number, host, COULD_NOT)
        line.hosts[number] = host
        call = DaemonWanted(job=order.job, attempt=order.attempt, epoch=order.epoch, rank=0, id=number, command=command)
        refusal = await self._ask(line, rank, call)
        if refusal:
            _log.warning("a daemon of mpirun cannot be started", run=key_of(order).name, rank=rank, reason=refusal)
            self._answer(line, number, host, COULD_NOT)
        return None

    async def _tell_end(self, line: _Line, call: DaemonEnded) -> None:
        await self._ask(line, 0, call)

    async def _ask(self, line: _Line, rank: int, call: GangCall) -> str:
        """Until it is taken up; else why not."""
        subject, reason = subjects.gang(self._node, line.order.nodes[rank]), "it is not ready"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TRIED_S):
                while self._lines.get(key_of(line.order)) is line:
                    try:
                        answer = decode_answer(await self._bus.request(subject, encode_gang(call), timeout_s=ANSWER_S))
                        if answer.go or answer.refusal:
                            return answer.refusal
                    except (Unavailable, msgspec.MsgspecError) as error:
                        reason = f"its agent does not answer: {error}"
                    await asyncio.sleep(AGAIN_S)
        return f"{line.order.nodes[rank]}: {reason}"

    # ------------------------------------------------------------------ what other nodes' agents say

    def wanted(self, order: RunOrder, call: DaemonWanted) -> GangAnswer:
        """Handle rank 0's request to run a command in the rank that waits here."""
        line = self._lines.get(key_of(order))
        if line is None:
            return GangAnswer()  # it is about to be started
        if call.id not in line.seen:
            try:
                put(line.box / f"run.{call.id}", call.command + "\n")
            except OSError as error:
                return GangAnswer(refusal=f"its command cannot be written: {error}")
            line.seen.add(call.id)
            line.write("down", f"{call.id}\n")
        return GangAnswer(go=True)

    def ended(self, order: RunOrder, call: DaemonEnded) -> GangAnswer:
        """A command that rank 0, which is here, has sent has ended."""
        line = self._lines.get(key_of(order))
        if line is not None:
            host = line.hosts.pop(call.id, None)
            # Of a command that an earlier agent process has sent, the name that it waits under is not known.
            for name in (host,) if host else dict.fromkeys((order.hosts[call.rank], order.nodes[call.rank])):
                self._answer(line, call.id, name, call.code)
        return GangAnswer(go=True)

    def _answer(self, line: _Line, number: int, host: str, code: int) -> None:
        if line.fds and (line.box / f"wake.{host}").exists():
            with contextlib.suppress(OSError):  # a full disk: mpirun sees by itself that its daemon is gone
                put(line.box / f"answer.{number}", f"{code}\n")
                line.write(f"wake.{host}", f"{number}\n")
