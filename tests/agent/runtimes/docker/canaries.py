"""Ways out of a container, each tried from inside. Runs as a program in the container: needs nothing but Python.

Prints a JSON object {name of the way: "" where it is shut, else what was reached}. A way is shut when the kernel refuses it by
rule (EPERM, EROFS, …) or there is nothing to be reached; an error of another kind means that the canary
was not sung rightly, and is told as well. Arguments: a file that only the host has, a process id of the host, and the ways to
try, joined by commas (all of them, where that is left out).
"""

# ruff: noqa: PTH101, PTH102, PTH103, PTH112, PTH116, PTH208 -- plain system calls

import ctypes
import errno
import json
import os
import platform
import resource
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

SHUT = {errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS, errno.ENOENT, errno.ESRCH}
NEWNS, NEWUSER, NEWPID, NEWNET, NEWCGROUP = 0x20000, 0x10000000, 0x20000000, 0x40000000, 0x02000000
PTRACE_ATTACH = 16
#: {system call: (number on x86_64, number on aarch64)}
NUMBERS = {
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280), "userfaultfd": (323, 282),
    "perf_event_open": (298, 241), "open_by_handle_at": (304, 265), "kexec_load": (246, 104), "init_module": (175, 105),
    "pivot_root": (155, 41), "reboot": (169, 142), "swapon": (167, 224), "settimeofday": (164, 170), "setns": (308, 268),
    "fsopen": (430, 430), "move_mount": (429, 429), "process_vm_readv": (310, 270), "acct": (163, 89), "quotactl": (179, 60),
}  # fmt: skip
libc = ctypes.CDLL(None, use_errno=True)
HOST_FILE, HOST_PID = sys.argv[1:3]


def check(result: int) -> int:
    """Raises OSError where a call of libc has failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def call(name: str, *arguments: object) -> int:
    """A system call that Python does not know."""
    number = NUMBERS[name][platform.machine() == "aarch64"]
    return check(libc.syscall(ctypes.c_long(number), *arguments))


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int = 0) -> int:
    return check(libc.mount(source, target, kind, ctypes.c_ulong(flags), None))


def fork_of(step: Callable[[], object]) -> int:
    """A step that would change this process is tried in a child; raises the child's error."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            step()
        except OSError as error:
            code = error.errno or 255
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise OSError(code, os.strerror(code))
    return 1


def some_of(path: str) -> object:
    """Return the readable entries; a masked file reads as empty."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        content = (
            os.read(file, 16)
            if not stat.S_ISDIR(os.fstat(file).st_mode)
            else b"".join(name.encode() for name in os.listdir(file))
        )
    finally:
        os.close(file)
    if not content:
        raise PermissionError(errno.EACCES, "masked")
    return content


def write(path: str) -> object:
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        return os.write(file, b"0")
    finally:
        os.close(file)


def chmod_root() -> object:
    return os.chmod("/", 0o777)


def more(limit: int) -> object:
    """Raise one's own hard limit."""
    _, hard = resource.getrlimit(limit)
    if hard == resource.RLIM_INFINITY:
        return "it is unlimited"
    try:
        resource.setrlimit(limit, (hard + 1, hard + 1))
    except ValueError as error:
        raise PermissionError(errno.EPERM, str(error)) from error
    return f"raised above {hard}"


def raw_socket() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        return "a raw socket"


def packet_socket() -> object:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW):
        return "a packet socket"


def unix_socket() -> object:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("/var/run/docker.sock")
        return "the engine's socket"


def cgroup_escape() -> object:
    """CVE-2022-0492: a cgroup hierarchy of one's own has a release agent that the host runs."""
    os.makedirs("/tmp/cg", exist_ok=True)
    return mount(b"cgroup", b"/tmp/cg", b"cgroup")


def other_processes() -> object:
    """Only our own, and those that the container begins with."""
    others = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
    if len(others) > 3:  # init, a shell at most, and we
        return f"{len(others)} processes"
    raise ProcessLookupError(errno.ESRCH, "none")


def capabilities() -> object:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    held = {name: status[name] for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb") if int(status[name], 16)}
    if held or status["NoNewPrivs"] != "1" or status["Seccomp"] != "2":
        return f"{held}, NoNewPrivs {status['NoNewPrivs']}, Seccomp {status['Seccomp']}"
    raise PermissionError(errno.EPERM, "none")


def devices() -> object:
    """Device files beyond those that every container has."""
    usual = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
    found = {entry.name for entry in Path("/dev").iterdir() if not entry.is_symlink() and not entry.is_dir()}
    if found - usual:
        return sorted(found - usual)
    raise FileNotFoundError(errno.ENOENT, "none")


WAYS: dict[str, Callable[[], object]] = {
    "mount tmpfs": lambda: mount(b"t", b"/tmp", b"tmpfs"),
    "mount proc": lambda: mount(b"p", b"/tmp", b"proc"),
    "mount bind": lambda: mount(b"/", b"/tmp", None, 4096),
    "mount cgroup": cgroup_escape,
    "remount root writable": lambda: mount(b"", b"/", None, 32),
    "remount proc writable": lambda: mount(b"", b"/proc/sys", None, 32 | 4096),
    "umount mask": lambda: check(libc.umount2(b"/proc/kcore", 0)),
    "fsopen": lambda: call("fsopen", b"tmpfs", 0),
    "move_mount": lambda: call("move_mount", 0, b"", 0, b"/tmp", 4),
    "mknod block": lambda: os.mknod("/tmp/disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0)),
    "mknod char": lambda: os.mknod("/tmp/mem", 0o600 | stat.S_IFCHR, os.makedev(1, 1)),
    "mknod in dev": lambda: os.mknod("/dev/mem", 0o600 | stat.S_IFCHR, os.makedev(1, 1)),
    "unshare user": lambda: fork_of(lambda: check(libc.unshare(NEWUSER))),
    "unshare mount": lambda: fork_of(lambda: check(libc.unshare(NEWNS))),
    "unshare pid": lambda: fork_of(lambda: check(libc.unshare(NEWPID))),
    "unshare net": lambda: fork_of(lambda: check(libc.unshare(NEWNET))),
    "unshare cgroup": lambda: fork_of(lambda: check(libc.unshare(NEWCGROUP))),
    "setns": lambda: call("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0),
    "keyctl": lambda: call("keyctl", 0, -3, 1),
    "add_key": lambda: call("add_key", b"user", b"k", b"v", ctypes.c_size_t(1), -3),
    "request_key": lambda: call("request_key", b"user", b"k", None, -3),
    "ptrace of a host process": lambda: check(libc.ptrace(PTRACE_ATTACH, int(HOST_PID), None, None)),
    "signal to a host process": lambda: os.kill(int(HOST_PID), 0),
    "memory of a host process": lambda: call("process_vm_readv", int(HOST_PID), None, 0, None, 0, 0),
    "processes of others": other_processes,
    "host by /proc/1/root": lambda: os.stat("/proc/1/root" + HOST_FILE),
    "host by a path": lambda: os.stat(HOST_FILE),
    "host by dots": lambda: os.stat("/../../../.." + HOST_FILE),
    "open_by_handle_at": lambda: call("open_by_handle_at", -100, None, 0),
    "bpf": lambda: call("bpf", 0, None, 0),
    "perf_event_open": lambda: call("perf_event_open", None, 0, -1, -1, 0),
    "userfaultfd": lambda: call("userfaultfd", 0),
    "kexec_load": lambda: call("kexec_load", 0, 0, None, 0),
    "init_module": lambda: call("init_module", None, 0, b""),
    "pivot_root": lambda: call("pivot_root", b"/tmp", b"/tmp"),
    "chroot": lambda: fork_of(lambda: os.chroot("/tmp")),
    "reboot": lambda: call("reboot", 0xFEE1DEAD, 672274793, 0, None),  # would only switch Ctrl-Alt-Del off
    "swapon": lambda: call("swapon", b"/tmp/none", 0),
    "acct": lambda: call("acct", b"/tmp/none"),
    "quotactl": lambda: call("quotactl", 0x80000100, None, 0, None),
    "clock": lambda: call("settimeofday", ctypes.byref((ctypes.c_long * 2)(0, 0)), None),
    "host name": lambda: socket.sethostname("captain"),
    "raw socket": raw_socket,
    "packet socket": packet_socket,
    "engine's socket": unix_socket,
    "setuid": lambda: fork_of(lambda: os.setuid(1)),
    "setgroups": lambda: fork_of(lambda: os.setgroups([6])),
    "chown": lambda: (Path("/tmp/mine").touch(), os.chown("/tmp/mine", 1, 1)),
    "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
    "real time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "more open files": lambda: more(resource.RLIMIT_NOFILE),
    "core dumps": lambda: more(resource.RLIMIT_CORE),
    "oom score": lambda: Path("/proc/self/oom_score_adj").write_text("-1000"),
    "write the root": lambda: write("/canary"),
    "write etc": lambda: write("/etc/passwd"),
    "chmod the root": chmod_root,
    "write core_pattern": lambda: write("/proc/sys/kernel/core_pattern"),
    "write sysrq": lambda: write("/proc/sysrq-trigger"),
    "write cgroup": lambda: os.mkdir("/sys/fs/cgroup/memory/x" if os.path.isdir("/sys/fs/cgroup/memory") else "/sys/fs/cgroup/x"),
    "write uevent_helper": lambda: write("/sys/kernel/uevent_helper"),
    "read kcore": lambda: some_of("/proc/kcore"),
    "read keys": lambda: some_of("/proc/keys"),
    "read firmware": lambda: some_of("/sys/firmware"),
    "read kmsg": lambda: some_of("/dev/kmsg"),
    "read memory": lambda: some_of("/dev/mem"),
    "capabilities": capabilities,
    "devices": devices,
}  # fmt: skip


def sing(way: Callable[[], object]) -> str:
    try:
        reached = way()
    except OSError as error:
        if error.errno in SHUT:
            return ""
        return f"malformed: {type(error).__name__} {errno.errorcode.get(error.errno or 0)} {error}"
    return f"reached: {reached!r}"


if __name__ == "__main__":
    chosen = sys.argv[3].split(",") if len(sys.argv) > 3 else list(WAYS)
    print(json.dumps({name: sing(WAYS[name]) for name in chosen}))
