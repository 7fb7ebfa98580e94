"""Program that becomes a command inside a run: it takes over what the run's program has of the machine, then executes the command.

Run by path with `-I -S` and an empty environment, so that nothing of the agent's own is handed on:

    python -I -S enter.py PROC_FD STATUS_FD PARENT TAG TERM -- COMMAND…

PROC_FD is the open directory /proc/PID of the run's program: it reads nothing once that process has gone, even if its number is
used again. Words that tell why the command cannot be started are written to STATUS_FD, which closes when it has been. TERM is "" where
stdin is no terminal.
"""

# ruff: noqa: PTH116, PTH123 -- system calls relative to an open directory of /proc, which pathlib has not

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import signal
import stat
import sys
import termios
from typing import NoReturn

NOT_FOUND, NOT_EXECUTABLE = 127, 126
PR_SET_PDEATHSIG = 1
#: In the order in which they are entered: the right to enter the others may come from the first.
NAMESPACES = ("user", "mnt", "net", "ipc", "uts", "cgroup", "pid")
#: RLIMIT_LOCKS, the mark of the run (linux/processes.py), is among them.
LIMITS = range(16)
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


class Refused(Exception):
    """The command cannot be started; `code` is what a shell would have answered."""

    def __init__(self, message: str, code: int = NOT_EXECUTABLE) -> None:
        super().__init__(message)
        self.code = code


def read(proc: int, name: str) -> bytes:
    """Read a file of the run's program. Raises OSError."""
    with open(os.open(name, os.O_RDONLY, dir_fd=proc), "rb") as file:
        return file.read()


def environment(proc: int, tag: bytes) -> dict[bytes, bytes]:
    """Return the environment with which the run's program was started. Raises Refused."""
    pairs = (each.partition(b"=") for each in read(proc, "environ").split(b"\0") if b"=" in each)
    found = {name: value for name, _, value in pairs if name}
    if found.get(b"FAIRLEAD_RUN") != tag:
        raise Refused("the run's environment cannot be read: its program has ended, or has written over it")
    return found


def status(proc: int) -> dict[str, list[str]]:
    """Return {name: words} of /proc/PID/status."""
    lines = (line.partition(":") for line in read(proc, "status").decode(errors="replace").splitlines())
    return {name: rest.split() for name, _, rest in lines}


def join_groups(proc: int) -> None:
    """Join the control groups of the run's program, so that its limits hold. Raises Refused."""
    with open("/proc/self/cgroup", "rb") as file:
        theirs, ours = read(proc, "cgroup"), file.read()
    if theirs == ours:
        return
    for line in set(theirs.decode().splitlines()) - set(ours.decode().splitlines()):
        _, controllers, path = line.split(":", 2)
        root = f"/sys/fs/cgroup/{controllers.removeprefix('name=')}" if controllers else "/sys/fs/cgroup"
        try:
            with open(f"{root}{path}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
        except OSError as error:
            raise Refused(f"the run's control group {path} cannot be joined: {error.strerror}") from error


def take_limits(pid: int) -> None:
    """Take over the limits of the run's program, and its processors."""
    for each in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # one may lower a limit, and only root raises it
            resource.setrlimit(each, resource.prlimit(pid, each))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, os.sched_getaffinity(pid))


def namespaces(proc: int) -> list[int]:
    """Return open files of the namespaces of the run's program that are not ours."""
    found: list[int] = []
    for name in NAMESPACES:
        if os.stat(f"ns/{name}", dir_fd=proc).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            found.append(os.open(f"ns/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc))
    return found


def become(words: dict[str, list[str]]) -> None:
    """Give up being root where the run's program is not."""
    uid, gid = int(words["Uid"][1]), int(words["Gid"][1])
    if os.geteuid() == 0 and uid != 0:
        os.setgroups([int(each) for each in words.get("Groups", [])])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def enter(proc: int, tag: bytes, parent: int) -> dict[bytes, bytes]:
    """Take over everything but the command; return the environment. Raises Refused, OSError."""
    env = environment(proc, tag)
    words = status(proc)
    place = os.open("cwd", os.O_PATH | os.O_CLOEXEC, dir_fd=proc)
    join_groups(proc)
    take_limits(int(words["Pid"][0]))
    entered = namespaces(proc)
    for each in entered:
        os.setns(each)
    become(words)
    os.fchdir(place)
    end_with(parent)
    if entered:
        here = os.getpid()
        pid = os.fork()  # a process namespace is entered by children alone
        if pid:
            leave_as(pid)
        end_with(os.getppid() or here)
    return env


def end_with(parent: int) -> None:
    """Get SIGHUP when the parent ends. Raises Refused where it has. (A parent in another process namespace is 0.)"""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() not in (parent, 0):
        raise Refused("the agent has ended meanwhile")


def leave_as(pid: int) -> NoReturn:
    """Wait for the child, and end as it did. Both are in one group, which is sent what the command is sent; the end of the agent
    alone reaches this process only.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, lambda *_: os.kill(pid, signal.SIGHUP))
    for fd in range(3, 20):
        with contextlib.suppress(OSError):
            os.close(fd)
    _, how = os.waitpid(pid, 0)
    if os.WIFSIGNALED(how):
        signal.signal(os.WTERMSIG(how), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(how))
    os._exit(os.waitstatus_to_exitcode(how) & 0xFF)


def execute(argv: list[bytes], env: dict[bytes, bytes]) -> NoReturn:
    """Become the command, looked up as a shell would. Raises Refused."""
    path = env.get(b"PATH", DEFAULT_PATH.encode())
    candidates = [argv[0]] if b"/" in argv[0] else [each + b"/" + argv[0] for each in path.split(b":") if each]
    refused = f"{os.fsdecode(argv[0])}: command not found", NOT_FOUND
    for each in candidates:
        try:
            if stat.S_ISDIR(os.stat(each).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            os.execve(each, argv, env)  # noqa: S606 -- what this program is for
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                os.execve(b"/bin/sh", [b"sh", each, *argv[1:]], env)  # noqa: S606 -- as above
            refused = f"{os.fsdecode(each)}: {error.strerror}", NOT_EXECUTABLE
    raise Refused(*refused)


def main() -> NoReturn:
    """Become the command, or write down why not."""
    proc, report, parent = map(int, sys.argv[1:4])
    tag, term = os.fsencode(sys.argv[4]), os.fsencode(sys.argv[5])
    for fd in (proc, report):
        os.set_inheritable(fd, False)
    code = NOT_EXECUTABLE
    try:
        if term:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        env = enter(proc, tag, parent)
        if term:
            env[b"TERM"] = term
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        execute([os.fsencode(each) for each in sys.argv[7:]], env)
    except Refused as error:
        words, code = str(error), error.code
    except OSError as error:
        words = "the run has ended" if error.errno == errno.ESRCH else f"the run cannot be entered: {error.strerror}"
    os.write(report, f"{code} {words}".encode(errors="replace"))
    os._exit(code)


if __name__ == "__main__":
    main()
