"""The spawner: one small process per node that is the parent of all its process runs and outlives the agent.

It spawns, waits, signals and remembers; it decides nothing. A program of its own, run by path with `-I -S`:
it imports nothing of Fairlead, so that it stays small and an agent of another version can talk to it.

    python -I -S spawner.py BASE LOCK_FD LISTENER_FD

It holds the lock (inherited, flock) for life: who gets the lock knows that no spawner lives. Agents connect
to the listening socket; both ways go lines of JSON, many per write.

    request                                                    answer
    {"op":"spawn","key","argv","env","cwd","dir","hostfile","spare"}   started | failed, later ended
    {"op":"signal","key","number"}                             to the run's group, as long as it is not reaped
    {"op":"notify","key","number"}                             to the run's program alone, likewise
    {"op":"forget","keys":[...]}                               its end is journalled elsewhere
    {"op":"list"}                                              listing

    {"event":"started","key","pid"}     pid 0: no program came to be (127 or 126 follows, as in a shell)
    {"event":"failed","key","text"}     nothing of it is there, or it was there before
    {"event":"ended","key","code","signal"}    one of the two is null; nothing of its group is left
    {"event":"listing","protocol","running":{key:pid},"ended":{key:[code,signal]},"orphans":{key:pid}}

`spare` is "" or an old run's directory, cleaned by the agent, that is renamed to `dir`: cheaper than a new one.
Events go to every connection. What an agent wrote before it died is carried out before the next agent's
first request is read; so a listing leaves nothing open. Starts and ends also go to the file BASE/spawned, one write
per batch, never synced: the next spawner knows from it the ends, and the orphans, whose parent this one was.
"""

# ruff: noqa: PTH102, PTH104, PTH110, PTH113, PTH123 -- plain system calls on strings, hundreds of times a second; pathlib costs more than they do

import contextlib
import errno
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

#: Said with every listing; one that says none is of version 1. A request that a version does not know is passed over.
PROTOCOL = 2
#: Without an agent and without a run it ends after so long; what it remembers is in the file.
IDLE_S = 10.0
#: A group that dies slowly is looked at again this often, and for so long.
VANISH_POLL_S = 0.02
VANISH_S = 5.0
READ_BYTES = 1 << 18
#: An agent that does not read its events is cut off; it reconnects and asks for a listing.
UNREAD_BYTES_MAX = 32 << 20
#: The file is written anew, with what is still remembered, when it has grown so large.
SPAWNED_BYTES_MAX = 1 << 14
#: Used, as shells do, when a job has no PATH.
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
NOT_FOUND, NOT_EXECUTABLE = 127, 126
#: Faults of the machine, not of the job: the run is refused instead of ended.
MACHINE_FAULTS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Connection:
    """One agent: a socket, the beginning of a line, and what it has not taken yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.rest = b""
        self.unsent = b""


class Spawner:
    """All runs of a node: `keys` by process id while they run, `ended` until forgotten."""

    def __init__(self, base: str, listener: socket.socket) -> None:
        self.path = base + "/spawned"
        self.listener = listener
        self.keys: dict[int, str] = {}
        self.pids: dict[str, int] = {}
        self.ended: dict[str, tuple[int | None, int | None]] = {}
        self.orphans: dict[str, int] = {}
        self.vanishing: dict[int, tuple[str, int | None, int | None, float]] = {}
        self.connections: dict[int, Connection] = {}
        self.programs: dict[tuple[str, str], str] = {}
        self.events: list[str] = []
        self.lines: list[str] = []
        self.idle_since = time.monotonic()
        # What this process ignores, a program must not: ignored signals stay so over an exec.
        self.ignored = [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN]
        self.wake, wake_write = socket.socketpair()
        for sock in (listener, self.wake, wake_write):
            sock.setblocking(False)
        self.wake_write = wake_write
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.poller = select.epoll()
        self.poller.register(listener, select.EPOLLIN)
        self.poller.register(self.wake, select.EPOLLIN)
        self.load()

    def run(self) -> None:
        """Work until there is nobody to work for."""
        while not self.idle():
            wait_s = VANISH_POLL_S if self.vanishing else None if self.connections else IDLE_S
            for fd, mask in self.poller.poll(wait_s):
                if fd == self.listener.fileno():
                    self.accept()
                elif fd == self.wake.fileno():
                    self.reap()
                elif (connection := self.connections.get(fd)) is not None:
                    if mask & select.EPOLLOUT:
                        self.send(connection, b"")
                    if mask & ~select.EPOLLOUT:
                        self.read(connection)
            for pid in list(self.vanishing):
                self.vanish(pid, *self.vanishing.pop(pid))
            self.flush()

    def idle(self) -> bool:
        """Whether it may end."""
        if self.connections or self.keys or self.vanishing:
            self.idle_since = time.monotonic()
        return time.monotonic() - self.idle_since >= IDLE_S

    # ------------------------------------------------------------------ agents

    def accept(self) -> None:
        """A new agent; what others have written is carried out before it can ask."""
        for connection in list(self.connections.values()):
            while self.read(connection):
                pass
        with contextlib.suppress(OSError):
            sock, _ = self.listener.accept()
            sock.setblocking(False)
            self.connections[sock.fileno()] = Connection(sock)
            self.poller.register(sock, select.EPOLLIN)

    def read(self, connection: Connection) -> bool:
        """Carry out what has arrived; whether there was something."""
        try:
            data = connection.sock.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.drop(connection)
            return False
        *lines, connection.rest = (connection.rest + data).split(b"\n")
        for line in lines:
            self.carry_out(json.loads(line), connection)
        return True

    def carry_out(self, request: dict[str, Any], connection: Connection) -> None:
        """One request."""
        match request["op"]:
            case "spawn":
                self.spawn(request["key"], request["dir"], request)
            case "signal":
                pid = self.pids.get(request["key"])
                if pid is not None:  # not reaped: the group's number is its own
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, request["number"])
            case "notify":
                pid = self.pids.get(request["key"])
                if pid is not None:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, request["number"])
            case "forget":
                for key in request["keys"]:
                    self.ended.pop(key, None)
                    self.orphans.pop(key, None)
            case "list":
                # What has been reaped and is not all gone yet will be told as ended: till then it runs.
                running = self.pids | {key: pid for pid, (key, *_) in self.vanishing.items()}
                listing = {
                    "event": "listing",
                    "protocol": PROTOCOL,
                    "running": running,
                    "ended": self.ended,
                    "orphans": self.orphans,
                }
                self.flush()  # what it was not told yet and is in the listing must not come after it
                self.send(connection, json.dumps(listing).encode() + b"\n")
            case _:
                pass  # an agent of a later version; it finds out by the silence

    def send(self, connection: Connection, data: bytes) -> None:
        """As much as goes; the rest when it can."""
        data = connection.unsent + data
        try:
            sent = connection.sock.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.drop(connection)
            return
        if bool(connection.unsent) != (sent < len(data)):
            self.poller.modify(connection.sock, select.EPOLLIN | (select.EPOLLOUT if sent < len(data) else 0))
        connection.unsent = data[sent:]
        if len(connection.unsent) > UNREAD_BYTES_MAX:
            self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """The agent has gone."""
        if self.connections.pop(connection.sock.fileno(), None) is not None:
            connection.sock.close()

    # ------------------------------------------------------------------ runs

    def spawn(self, key: str, directory: str, request: dict[str, Any]) -> None:
        """Start a run in a new directory, which refuses a second start of the same run."""
        try:
            make_directory(directory, request.get("spare", ""))
            if request["hostfile"]:
                write(directory + "/hostfile", request["hostfile"])
            pid, code = self.start(request["argv"], request["env"], request["cwd"] or directory, directory)
        except (OSError, ValueError) as error:
            self.tell({"event": "failed", "key": key, "text": str(error)})
            return
        self.tell({"event": "started", "key": key, "pid": pid})
        if pid:
            self.keys[pid], self.pids[key] = key, pid
            self.lines.append(f"S {key} {pid}\n")
        else:
            self.end(key, code, None)

    def start(self, argv: list[str], env: dict[str, str], cwd: str, directory: str) -> tuple[int, int]:
        """Its process id; or 0, and the exit code that a shell would have had. Raises OSError, ValueError."""
        try:
            os.chdir(cwd)  # nobody else is in this process
        except OSError as error:
            return refuse(directory, NOT_EXECUTABLE, f"{cwd}: {error.strerror}")
        program = argv[0] if "/" in argv[0] else self.find(argv[0], env.get("PATH", DEFAULT_PATH))
        actions = (
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, directory + "/stdout", _CREATE, 0o640),
            (os.POSIX_SPAWN_OPEN, 2, directory + "/stderr", _CREATE, 0o640),
        )
        options: dict[str, Any] = {"file_actions": actions, "setsid": True, "setsigmask": (), "setsigdef": self.ignored}
        try:
            try:
                return os.posix_spawn(program, argv, env, **options), 0
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
                return os.posix_spawn("/bin/sh", ["sh", program, *argv[1:]], env, **options), 0
        except OSError as error:
            self.programs.clear()
            if error.errno in MACHINE_FAULTS:
                raise
            missing = error.errno == errno.ENOENT
            return refuse(directory, NOT_FOUND if missing else NOT_EXECUTABLE, f"{argv[0]}: {error.strerror}")

    def find(self, name: str, path: str) -> str:
        """The program of that name; where there is none, a name that the kernel refuses for the right reason."""
        program = self.programs.get((name, path), "")
        if not program:
            there = [
                f"{folder or '.'}/{name}" for folder in path.split(":") if os.path.isfile(f"{folder or '.'}/{name}")
            ]
            program = next((p for p in there if os.access(p, os.X_OK)), there[0] if there else "/nonexistent/" + name)
            if program.startswith("/") and there and len(self.programs) < 1000:
                self.programs[name, path] = program
        return program

    def reap(self) -> None:
        """Take up every child that has ended."""
        self.wake.recv(4096)
        while self.keys:
            result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if result is None:
                return
            pid, status = result.si_pid, result.si_status
            # Before reaping, while the group's number cannot be another's: what the program left behind ends with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            key = self.keys.pop(pid)
            del self.pids[key]
            exited = result.si_code == os.CLD_EXITED
            self.vanish(pid, key, status if exited else None, None if exited else status)

    def vanish(self, pid: int, key: str, code: int | None, number: int | None, until: float = 0.0) -> None:
        """Its end is told when the whole group is gone."""
        try:
            os.killpg(pid, 0)
            until = until or time.monotonic() + VANISH_S
        except OSError:
            until = 0.0
        if until > time.monotonic():
            self.vanishing[pid] = (key, code, number, until)
        else:
            self.end(key, code, number)

    def end(self, key: str, code: int | None, number: int | None) -> None:
        """The run is over."""
        self.ended[key] = (code, number)
        self.lines.append(f"E {key} {code if number is None else -number}\n")
        self.tell({"event": "ended", "key": key, "code": code, "signal": number})

    # ------------------------------------------------------------------ memory

    def tell(self, event: dict[str, Any]) -> None:
        """To every agent, with the next flush."""
        self.events.append(json.dumps(event))

    def flush(self) -> None:
        """Write down what happened, then tell it."""
        if self.lines:
            os.chdir("/")
            with contextlib.suppress(OSError):  # a full disk costs exit codes only if this process dies, too
                self.note()
            self.lines.clear()
        if self.events:
            data = "\n".join([*self.events, ""]).encode()
            self.events.clear()
            for connection in list(self.connections.values()):
                self.send(connection, data)

    def note(self) -> None:
        """Append to the file, or write it anew."""
        if os.lseek(self.file, 0, os.SEEK_END) < SPAWNED_BYTES_MAX:
            os.write(self.file, "".join(self.lines).encode())
            return
        running = self.orphans | self.pids | {key: pid for pid, (key, *_) in self.vanishing.items()}
        lines = [f"S {key} {pid}\n" for key, pid in running.items()]
        lines += [f"E {key} {code if number is None else -number}\n" for key, (code, number) in self.ended.items()]
        write(self.path + ".new", "".join(lines))
        os.rename(self.path + ".new", self.path)
        os.close(self.file)
        self.file = os.open(self.path, os.O_RDWR | os.O_APPEND)

    def load(self) -> None:
        """What an earlier spawner has left."""
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with open(self.path, encoding="ascii", errors="replace") as file:
            for line in file:
                what, key, value = [*line.split(), "", "", ""][:3]
                if not line.endswith("\n") or not value.lstrip("-").isdecimal():
                    continue  # a torn write
                if what == "S":
                    self.orphans[key] = int(value)
                else:
                    self.orphans.pop(key, None)
                    self.ended[key] = (int(value), None) if int(value) >= 0 else (None, -int(value))
        os.write(self.file, b"\n")  # ends a torn line


def make_directory(path: str, spare: str) -> None:
    """A directory that was not there before: an old run's, as new, or one of its own. Raises OSError."""
    if spare and not os.path.exists(path):  # renaming would take the place of an empty one
        with contextlib.suppress(OSError):
            os.utime(spare)
            os.rename(spare, path)
            return
    os.mkdir(path, 0o750)


def refuse(directory: str, code: int, text: str) -> tuple[int, int]:
    """Leave the files that a shell would have left; raises OSError."""
    write(directory + "/stdout", "")
    write(directory + "/stderr", f"fairlead: {text}\n")
    return 0, code


def write(path: str, text: str) -> None:
    """A new file, of our user only."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    try:
        os.write(fd, text.encode(errors="surrogateescape"))
    finally:
        os.close(fd)


def main() -> None:
    """Take over the lock and the socket from the agent that started this."""
    for name in (signal.SIGHUP, signal.SIGINT):
        signal.signal(name, signal.SIG_IGN)
    base, lock, listener = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for fd in (lock, listener):
        os.set_inheritable(fd, False)
    Spawner(base, socket.socket(fileno=listener)).run()


if __name__ == "__main__":
    main()
