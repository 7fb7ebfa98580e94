"""Spawner: one small process per node that is the parent of all its process runs and outlives the agent.

It spawns, waits, signals and remembers; it makes no decisions. A program of its own, run by path with `-I -S`:
it imports no module of Fairlead, so that it stays small and an agent of another version can talk to it.

    python -I -S spawner.py BASE LOCK_FD LISTENER_FD

It holds the lock (inherited, flock) for life: the process that gets the lock knows that no spawner lives. Agents
connect to the listening socket; lines of JSON go both ways, many per write.

    request                                                    answer
    {"op":"spawn","key","argv","env","cwd","dir","hostfile","spare","work"}   started | failed, later ended
    {"op":"signal","key","number"}                             to the run's group, as long as it is not reaped
    {"op":"notify","key","number"}                             to the run's program alone, likewise
    {"op":"forget","keys":[...]}                               its end is journalled elsewhere
    {"op":"list"}                                              listing

    {"event":"started","key","pid"}     pid 0: no program was executed (127 or 126 follows, as in a shell)
    {"event":"failed","key","text"}     no part of the run is there, or it was there before
    {"event":"ended","key","code","signal"}    one of the two is null; no process that the run has started is left;
                                               with "oom":true where the kernel killed it for memory
    {"event":"listing","protocol","running":{key:pid},"ended":{key:[code,signal]},"orphans":{key:pid},"marks":{key:mark}}

`work` is "" or a directory that becomes the run's own, `dir`/work. `spare` is "" or an old run's directory, cleaned by the agent, that is renamed to `dir`: cheaper than a new one.
A program may leave its group and session and start others with an empty environment. So each run carries a mark that
only a privileged process can undo: a value of RLIMIT_LOCKS, which limits nothing since Linux 2.4.25 and which children
inherit. As a subreaper this process becomes the parent of processes that outlive their own parent. A process with the
mark of an ended run is killed, and the run's end is reported when all are gone. The search is skipped if no process has
forked meanwhile, which the kernel's newest process id shows.

Events go to every connection. Requests that an agent wrote before it died are carried out before the next agent's
first request is read; so a listing leaves no request open. Starts and ends also go to the file BASE/spawned, one write
per batch, never synced: the next spawner reads from it the ends, and the orphans left by this spawner.
"""

# ruff: noqa: PTH102, PTH104, PTH110, PTH113, PTH123, PTH208 -- plain system calls on strings, hundreds of times a second; pathlib costs more than they do

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

#: Version stated with every listing; a spawner that states none has version 1. A version ignores unknown
#: requests.
PROTOCOL = 2
#: Without an agent and without a run it ends after so long; what it remembers is in the file.
IDLE_S = 10.0
#: What dies slowly is looked at again this often; after so long it is logged.
VANISH_POLL_S = 0.02
VANISH_S = 5.0
#: RLIMIT_LOCKS, of which Python's module has no name.
MARK = 10
#: Within this time process ids cannot have gone round once.
NEWEST_PID_S = 0.5
PR_SET_CHILD_SUBREAPER = 36
READ_BYTES = 1 << 18
#: An agent that does not read its events is cut off; it reconnects and asks for a listing.
UNREAD_BYTES_MAX = 32 << 20
#: Size at which the file is rewritten with only what is still remembered.
SPAWNED_BYTES_MAX = 1 << 14
#: Used, as shells do, when a job has no PATH.
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
NOT_FOUND, NOT_EXECUTABLE = 127, 126
#: Faults of the machine, not of the job: the run is refused instead of ended.
MACHINE_FAULTS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_APPEND
#: Of an end: the kernel killed the program for memory.
OOM = ',"oom":true'
#: As `json.loads`, without its look for the text's encoding and for what follows the value.
_decode = json.JSONDecoder().raw_decode


class Connection:
    """Connection of one agent: a socket, the beginning of a line, and the data that the agent has not read yet."""

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
        #: {process id: (key, code, signal, since when it is waited for, killed for memory)} of ended programs.
        self.vanishing: dict[int, tuple[str, int | None, int | None, float, bool]] = {}
        self.marks: dict[str, int] = {}
        #: Of this process itself; each run gets one below the last one's.
        self.mark = first_mark()
        #: Programs that were alive at the time of a fork: only they may have left a process behind.
        self.forked: set[int] = set()
        self.newest, self.newest_at = 0, 0.0
        self.loadavg = os.open("/proc/loadavg", os.O_RDONLY)
        self.children_path = become_subreaper()
        self.oom_kills = OomKills(oom_file())
        #: Runs that were killed on request.
        self.killed: set[str] = set()
        self.connections: dict[int, Connection] = {}
        self.programs: dict[tuple[str, str], str] = {}
        #: Lines for every agent, sent with the next flush.
        self.events: list[str] = []
        self.lines: list[str] = []
        self.idle_since = time.monotonic()
        # What this process ignores, a program must not: ignored signals stay so over an exec.
        ignored = [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN]
        self.attributes: dict[str, Any] = {"setsid": True, "setsigmask": (), "setsigdef": ignored}
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
        """Handle requests and ends until the spawner is idle."""
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
            if self.vanishing:
                self.vanish()
            self.flush()

    def idle(self) -> bool:
        """Return True if the spawner may end."""
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
            self.carry_out(_decode(line.decode())[0], connection)
        return True

    def carry_out(self, request: dict[str, Any], connection: Connection) -> None:
        """Carry out one request."""
        match request["op"]:
            case "spawn":
                self.spawn(request["key"], request["dir"], request)
            case "signal":
                pid = self.pids.get(request["key"])
                if pid is not None:  # not reaped: the group's number is its own
                    if request["number"] == signal.SIGKILL:
                        self.killed.add(request["key"])
                    send(os.killpg, pid, request["number"])
            case "notify":
                pid = self.pids.get(request["key"])
                if pid is not None:
                    send(os.kill, pid, request["number"])
            case "forget":
                for key in request["keys"]:
                    self.ended.pop(key, None)
                    self.orphans.pop(key, None)
                    self.marks.pop(key, None)
            case "list":
                # A reaped run with processes that still exist will be reported as ended later. Until then it counts as
                # running.
                running = self.pids | {key: pid for pid, (key, *_) in self.vanishing.items()}
                listing = {
                    "event": "listing",
                    "protocol": PROTOCOL,
                    "running": running,
                    "ended": self.ended,
                    "orphans": self.orphans,
                    "marks": {key: self.marks.get(key, 0) for key in (*running, *self.orphans)},
                }
                self.flush()  # events that are in the listing but not sent yet must not come after it
                self.send(connection, json.dumps(listing).encode() + b"\n")
            case _:
                pass  # an agent of a later version; it finds out by the silence

    def send(self, connection: Connection, data: bytes) -> None:
        """Send as much data as the socket takes now, and the rest when it can take more."""
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
            if request.get("work"):
                os.rename(request["work"], directory + "/work")
            pid, code = self.start(request["argv"], request["env"], request["cwd"] or directory, directory)
        except (OSError, ValueError) as error:
            self.events.append(f'{{"event":"failed","key":{quoted(key)},"text":{quoted(str(error))}}}')
            return
        self.events.append(f'{{"event":"started","key":{quoted(key)},"pid":{pid}}}')
        if pid:
            if pid != self.newest + 1:
                self.forked.update(self.keys)
            self.newest, self.newest_at = pid, time.monotonic()
            self.keys[pid], self.pids[key], self.marks[key] = key, pid, self.mark + 1
            self.lines.append(f"S {key} {pid} {self.mark + 1}\n")
        else:
            self.end(key, code, None)

    def start(self, argv: list[str], env: dict[str, str], cwd: str, directory: str) -> tuple[int, int]:
        """Start the program and return its process id first; or 0, and the exit code that a shell would have had.

        Raises OSError, ValueError.
        """
        try:
            os.chdir(cwd)  # no other code runs in this process
        except OSError as error:
            return refuse(directory, NOT_EXECUTABLE, f"{cwd}: {error.strerror}")
        program = argv[0] if "/" in argv[0] else self.find(argv[0], env.get("PATH", DEFAULT_PATH))
        set_mark(self.mark - 1)
        try:
            return self.execute(program, argv, env, directory)
        finally:
            self.mark -= 2
            set_mark(self.mark)

    def execute(self, program: str, argv: list[str], env: dict[str, str], directory: str) -> tuple[int, int]:
        """Start it with the mark that this process has now; as `start`."""
        actions = (
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, directory + "/stdout", _CREATE, 0o640),
            (os.POSIX_SPAWN_OPEN, 2, directory + "/stderr", _CREATE, 0o640),
        )
        try:
            try:
                return os.posix_spawn(program, argv, env, file_actions=actions, **self.attributes), 0
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
                return os.posix_spawn(
                    "/bin/sh", ["sh", program, *argv[1:]], env, file_actions=actions, **self.attributes
                ), 0
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
        """Take up every child that has ended: programs of runs, and what has become ours when its parent ended."""
        self.wake.recv(4096)
        now = time.monotonic()
        while True:
            try:
                result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if result is None:
                return
            pid, status = result.si_pid, result.si_status
            key = self.keys.pop(pid, None)
            if key is not None:
                # Before reaping, while the group's number cannot be another's: what the program left behind ends with it.
                send(os.killpg, pid, signal.SIGKILL)
                del self.pids[key]
                exited = result.si_code == os.CLD_EXITED
                oom = status == signal.SIGKILL and not exited and key not in self.killed and self.oom_kills.rose()
                self.vanishing[pid] = (key, status if exited else None, None if exited else status, now, oom)
            os.waitpid(pid, 0)

    def vanish(self) -> None:
        """Tell the ends of runs of which nothing is left, and kill what is left of the others."""
        newest = int(os.pread(self.loadavg, 128, 0).split()[4])
        now = time.monotonic()
        if newest != self.newest or now - self.newest_at > NEWEST_PID_S:
            self.forked.update(self.keys, self.vanishing)
        self.newest, self.newest_at = newest, now
        left = self.kill_left() if not self.forked.isdisjoint(self.vanishing) else ()
        for pid, (key, code, number, since, oom) in list(self.vanishing.items()):
            if self.marks[key] not in left and is_gone(pid):
                del self.vanishing[pid]
                self.forked.discard(pid)
                self.killed.discard(key)
                self.end(key, code, number, oom)
            elif now - since > VANISH_S:
                self.vanishing[pid] = (key, code, number, float("inf"), oom)
                sys.stderr.write(
                    f"{key}: its processes do not end when killed; its end is reported when they have ended\n"
                )

    def kill_left(self) -> set[int]:
        """Kill what carries the mark of an ended run; the marks that were found."""
        ended = {self.marks[key] for key, *_ in self.vanishing.values()}
        left: set[int] = set()
        for pid in self.others():
            mark = mark_of(pid)
            if mark in ended:
                left.add(mark)
                send(os.kill, pid, signal.SIGKILL)
        return left

    def others(self) -> list[int]:
        """Children of this process that no run began with; where the kernel does not list children, all processes."""
        try:
            with open(self.children_path, "rb") as file:
                pids = [int(pid) for pid in file.read().split()]
        except FileNotFoundError:
            pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        return [pid for pid in pids if pid not in self.keys]

    def end(self, key: str, code: int | None, number: int | None, oom: bool = False) -> None:
        """The run is over."""
        self.ended[key] = (code, number)
        self.marks.pop(key, None)
        self.lines.append(f"E {key} {code if number is None else -number}\n")
        how = f'"code":{code},"signal":null' if number is None else f'"code":null,"signal":{number}'
        self.events.append(f'{{"event":"ended","key":{quoted(key)},{how}{OOM if oom else ""}}}')

    # ------------------------------------------------------------------ memory

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
        """Append the new lines to the file, or rewrite it when it has grown too large."""
        if os.lseek(self.file, 0, os.SEEK_END) < SPAWNED_BYTES_MAX:
            os.write(self.file, "".join(self.lines).encode())
            return
        running = self.orphans | self.pids | {key: pid for pid, (key, *_) in self.vanishing.items()}
        lines = [f"S {key} {pid} {self.marks.get(key, 0)}\n" for key, pid in running.items()]
        lines += [f"E {key} {code if number is None else -number}\n" for key, (code, number) in self.ended.items()]
        write(self.path + ".new", "".join(lines))
        os.rename(self.path + ".new", self.path)
        os.close(self.file)
        self.file = os.open(self.path, os.O_RDWR | os.O_APPEND)

    def load(self) -> None:
        """Load the orphans and ends that an earlier spawner recorded."""
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with open(self.path, encoding="ascii", errors="replace") as file:
            for line in file:
                what, key, value, mark = [*line.split(), "", "", "", ""][:4]
                if not line.endswith("\n") or not value.lstrip("-").isdecimal():
                    continue  # a torn write
                if what == "S":
                    self.orphans[key] = int(value)
                    self.marks[key] = int(mark) if mark.isdecimal() else 0
                else:
                    self.orphans.pop(key, None)
                    self.marks.pop(key, None)
                    self.ended[key] = (int(value), None) if int(value) >= 0 else (None, -int(value))
        os.write(self.file, b"\n")  # ends a torn line


class OomKills:
    """A counter of the kernel's, in a file: how often it has killed for memory."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDONLY)
        self.count = self.read()

    def rose(self) -> bool:
        """Return True if it counts more than when it was last asked."""
        before, self.count = self.count, self.read()
        return self.count > before

    def read(self) -> int:
        """The count now; 0 where the file has none."""
        words = os.pread(self.file, 1 << 16, 0).split()
        return int(words[words.index(b"oom_kill") + 1]) if b"oom_kill" in words else 0


def oom_file() -> str:
    """The file that counts kills within the control group of this process, or else of the machine."""
    found = "/proc/vmstat"
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for candidate in (
                f"/sys/fs/cgroup{path}/memory.events" if not controllers else "",
                f"/sys/fs/cgroup/memory{path}/memory.oom_control" if controllers == "memory" else "",
            ):
                if candidate and os.access(candidate, os.R_OK):
                    found = candidate
    return found


def become_subreaper() -> str:
    """Make this process the new parent of descendants that outlive their own parent.

    Return the file that lists this process's children, "" if the kernel refuses.
    """
    import ctypes  # for this one call

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        return ""
    return f"/proc/self/task/{os.getpid()}/children"


def first_mark() -> int:
    """Set and return the first mark of this process, which no other process has.

    The mark is far below the process's limit, because the limit may itself be a run's mark.
    """
    limit = resource.getrlimit(MARK)[1]
    most = limit if limit != resource.RLIM_INFINITY else 1 << 62
    mark = most // 2 + int.from_bytes(os.urandom(8)) % (most // 2)
    set_mark(mark)
    return mark


def set_mark(mark: int) -> None:
    """Set the mark of this process and of the processes that it starts from here on. It can only fall, unless the spawner is
    privileged.
    """
    resource.setrlimit(MARK, (mark, mark))


def mark_of(pid: int) -> int:
    """The mark of a process; 0 of one that is gone, or another user's."""
    try:
        return resource.prlimit(pid, MARK)[1]
    except OSError:
        return 0


def send(kill: Callable[[int, int], None], pid: int, number: int) -> None:
    """Send a signal by `os.kill` or `os.killpg`; one that cannot be sent is left out."""
    try:
        kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def is_gone(group: int) -> bool:
    """Return True if nothing of a process group is left that could be killed."""
    try:
        os.killpg(group, 0)
    except OSError:
        return True
    return False


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
