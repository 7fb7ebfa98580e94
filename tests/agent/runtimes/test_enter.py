"""Commands inside a run, held by every adapter: environment, streams, signals and end."""

import asyncio
import signal
import time
from collections.abc import Callable

import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.processes import stat_identity
from fairlead_agent.runtimes.entered import CannotEnter, Entered
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.process.entered_process import EnteredProcess
from fairlead_schemas.wire.terminal import CommandExit, StartCommand
from tests.agent.runtime_watch import Watch
from tests.agent.runtimes.runtime_world import RuntimeWorld
from tests.kit.eventually import eventually_async

KEY = RunKey("901", 1, 0)
#: Directory of the run that it may write to: a container's root is read-only.
SHARED = "${SHARED:-.}"


class Heard:
    """Output of one command, apart."""

    def __init__(self) -> None:
        self.out, self.err = b"", b""
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def deliver(self, stream: int, data: bytes) -> None:
        await self.may_go_on.wait()
        if stream == 1:
            self.out += data
        else:
            self.err += data


class Visit:
    """One command in the run, at work."""

    def __init__(self, entered: Entered) -> None:
        self.entered, self.heard = entered, Heard()
        self.carrying = asyncio.create_task(entered.carry(self.heard.deliver))

    async def end(self) -> CommandExit:
        async with asyncio.timeout(20):
            return await self.carrying

    async def until(self, met: Callable[[bytes], bool]) -> None:
        await eventually_async(lambda: met(self.heard.out), within_s=20)


async def running(world: RuntimeWorld, script: str = "echo ready; exec sleep 60") -> tuple[Runtime, Watch]:
    """A runtime with run 901 in it, which says "ready" first."""
    runtime, watch = await world.runtime()
    runtime.start(
        world.sh("901", script, env={"GREETING": "hello", **({"SHARED": "/tmp"} if world.kind == "docker" else {})})
    )
    out, _ = runtime.output(KEY)
    await eventually_async(lambda: KEY in watch.starts and out.exists() and out.read_bytes().startswith(b"ready"))
    return runtime, watch


async def visit(runtime: Runtime, *argv: str, tty: bool = False, input: bool = False) -> Visit:
    """Start a command."""
    command = StartCommand(argv=[*argv], tty=tty, input=input, rows=33, columns=99, term="xterm")
    return Visit(await runtime.enter(KEY, command))


async def test_a_command_has_its_streams_apart_and_its_exit_code(world: RuntimeWorld) -> None:
    """Every byte passes unchanged in both directions; without input it reads nothing."""
    runtime, _ = await running(world)
    there = await visit(runtime, "sh", "-c", r"printf 'a\000\033[31m\377'; printf 'oh\r\n' >&2; exit 7")
    assert await there.end() == CommandExit(code=7)
    assert (there.heard.out, there.heard.err) == (b"a\0\x1b[31m\xff", b"oh\r\n")
    echo = await visit(runtime, "cat", input=True)
    await echo.entered.write(bytes(range(256)) * 1000)
    echo.entered.end_input()
    assert await echo.end() == CommandExit(code=0)
    assert echo.heard.out == bytes(range(256)) * 1000
    assert await (await visit(runtime, "cat")).end() == CommandExit(code=0)


async def test_a_command_is_where_the_run_is(world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory, user, environment, namespaces and limits are the run's; of the agent's environment it sees nothing."""
    monkeypatch.setenv("FAIRLEAD_NATS_SEED", "canary-7f3a")
    show = "pwd; id -u; id -g; echo $GREETING; ulimit -n; readlink /proc/self/ns/mnt; readlink /proc/self/ns/net"
    runtime, _ = await running(world, f"({show}) > {SHARED}/shown 2>&1; echo ready; exec sleep 60")
    there = await visit(
        runtime,
        "sh",
        "-c",
        f"({show}) > {SHARED}/again; cat {SHARED}/shown; echo ===; cat {SHARED}/again; echo ===; env; cat /proc/$$/environ",
    )
    assert await there.end() == CommandExit(code=0)
    of_run, of_command, environment = there.heard.out.decode().split("===\n")
    assert of_run == of_command
    assert "hello" in of_run
    assert "canary" not in environment
    assert "FAIRLEAD_NATS" not in environment


async def test_a_terminal_has_a_size_signals_and_an_end_of_input(world: RuntimeWorld) -> None:
    """Ctrl-C ends what is in front and not the shell; a new size arrives; Ctrl-D ends the shell with its last code."""
    runtime, _ = await running(world)
    there = await visit(runtime, "sh", tty=True, input=True)
    await there.entered.write(b"stty size; echo TERM=$TERM; tty\n")
    await there.until(lambda out: b"33 99" in out and b"TERM=xterm\r\n" in out and b"/dev/pts/" in out)
    await there.entered.resize(44, 111)
    await there.entered.write(b"stty size\n")
    await there.until(lambda out: b"44 111" in out)
    await there.entered.write(b"echo be''gun; sleep 50\n")
    await there.until(lambda out: b"begun" in out)
    began = time.monotonic()
    await asyncio.sleep(0.2)
    await there.entered.write(b"\x03")
    await there.entered.write(b"echo af''ter; (exit 9)\n")
    await there.until(lambda out: b"after" in out)
    assert time.monotonic() - began < 20
    there.entered.end_input()
    assert await there.end() == CommandExit(code=9)


async def test_signals_reach_a_command(world: RuntimeWorld) -> None:
    """And what it has started in its group; its end says by which it ended."""
    runtime, _ = await running(world)
    there = await visit(runtime, "sh", "-c", "trap 'echo heard; exit 5' INT; echo up; while :; do sleep 0.05; done")
    await there.until(lambda out: b"up" in out)
    await there.entered.signal(signal.SIGINT)
    assert await there.end() == CommandExit(code=5)
    assert there.heard.out == b"up\nheard\n"
    killed = await visit(runtime, "sleep", "50")
    await killed.entered.signal(signal.SIGKILL)
    assert await killed.end() in (CommandExit(signal="SIGKILL"), CommandExit(code=137))


@pytest.mark.parametrize("tty", [False, True])
async def test_a_lost_connection_hangs_up(world: RuntimeWorld, tty: bool) -> None:
    """The command gets SIGHUP, whether it writes, reads or does neither."""
    runtime, _ = await running(world)
    there = await visit(
        runtime,
        "sh",
        "-c",
        f"trap 'echo gone > {SHARED}/hung; exit' HUP; echo up; while :; do sleep 0.05; done",
        tty=tty,
    )
    await there.until(lambda out: b"up" in out)
    there.carrying.cancel()
    await asyncio.gather(there.carrying, return_exceptions=True)
    await there.entered.hang_up()

    async def is_written() -> bool:
        look = await visit(runtime, "sh", "-c", f"cat {SHARED}/hung")
        await look.end()
        return look.heard.out == b"gone\n"

    async with asyncio.timeout(10):
        while not await is_written():  # noqa: ASYNC110 -- it runs a command, and waits for its end
            await asyncio.sleep(0.05)


async def test_a_terminal_does_not_outlive_its_agent(world: RuntimeWorld) -> None:
    """The next agent process hangs up what the engine holds open; the terminal of a process ends with the agent's own files."""
    runtime, _ = await running(world)
    script = f"trap 'echo gone > {SHARED}/hung; exit' HUP; echo up; while :; do sleep 0.05; done"
    there = await visit(runtime, "sh", "-c", script, tty=True)
    await there.until(lambda out: b"up" in out)
    there.carrying.cancel()
    await asyncio.gather(there.carrying, return_exceptions=True)
    if isinstance(there.entered, EnteredProcess):
        there.entered._close_files()  # as the kernel does at the agent's end
    await runtime.close()
    after, _ = await world.runtime()
    await after.adopt([KEY])

    async def is_hung_up() -> bool:
        look = await visit(after, "sh", "-c", f"cat {SHARED}/hung")
        await look.end()
        return look.heard.out == b"gone\n"

    async with asyncio.timeout(10):
        while not await is_hung_up():  # noqa: ASYNC110 -- as above
            await asyncio.sleep(0.05)


async def test_a_reader_that_stalls_holds_the_command(world: RuntimeWorld) -> None:
    """Endless output is not read while the reader takes none."""
    runtime, _ = await running(world)
    there = await visit(runtime, "sh", "-c", "yes > /dev/stderr & yes")
    await there.until(lambda out: len(out) > 100_000)
    there.heard.may_go_on.clear()
    await asyncio.sleep(0.3)
    before = len(there.heard.out) + len(there.heard.err)
    await asyncio.sleep(0.5)
    assert len(there.heard.out) + len(there.heard.err) == before
    there.heard.may_go_on.set()
    await there.until(lambda out: len(out) > before + 1_000_000)
    there.carrying.cancel()
    await asyncio.gather(there.carrying, return_exceptions=True)
    await there.entered.hang_up()


async def test_what_is_left_in_the_background_is_not_awaited(world: RuntimeWorld) -> None:
    """Though it holds the command's output open."""
    runtime, _ = await running(world)
    there = await visit(runtime, "sh", "-c", "sleep 40 & echo done")
    began = time.monotonic()
    assert await there.end() == CommandExit(code=0)
    assert there.heard.out == b"done\n"
    assert time.monotonic() - began < 10


async def test_commands_that_cannot_be_are_refused_as_by_a_shell(world: RuntimeWorld) -> None:
    """With words and 127 or 126, or as soon as they begin."""
    runtime, _ = await running(world)
    for argv, code in (
        (["no-such-program"], 127),
        (["/no/such/program"], 127),
        (["/etc"], 126),
        (["/etc/passwd"], 126),
    ):
        if world.kind == "docker":  # the engine says it on the output, as its own exec does
            assert (await (await visit(runtime, *argv)).end()).code in (126, 127), argv
            continue
        with pytest.raises(CannotEnter, match=argv[0]) as refused:
            await visit(runtime, *argv)
        assert refused.value.code == code
    with pytest.raises(CannotEnter, match="not running"):
        await runtime.enter(RunKey("902", 1, 0), StartCommand(argv=["true"]))


async def test_the_end_of_a_run_ends_what_is_inside(world: RuntimeWorld) -> None:
    """Also what has left its session; the run's end is emitted when all of it has ended."""
    runtime, watch = await running(world, f"echo ready; while [ ! -e {SHARED}/over ]; do sleep 0.05; done")
    there = await visit(
        runtime,
        "sh",
        "-c",
        f"trap '' HUP TERM; setsid sleep 300 & echo $$ $!; touch {SHARED}/over; exec sleep 300",
        tty=True,
    )
    end = await there.end()
    assert end != CommandExit(code=0)
    await watch.exit_of(KEY)
    if world.kind == "process":
        mine, left = there.heard.out.split()
        assert [stat_identity(int(pid)) for pid in (mine, left)] == [None, None]
    with pytest.raises(CannotEnter):
        await runtime.enter(KEY, StartCommand(argv=["true"]))
