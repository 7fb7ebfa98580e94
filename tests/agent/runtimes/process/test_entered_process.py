"""Commands that people run inside a process run: what they wrote is there when they have ended, however late the loop is."""

import asyncio
import os

import pytest

from fairlead_agent.linux.processes import TAG
from fairlead_agent.runtimes.process import entered_process
from fairlead_agent.runtimes.process.entered_process import EnteredProcess
from fairlead_schemas.wire.terminal import CommandExit, StartCommand

TAG_OF_RUN = "entered-901"


async def test_output_of_an_ended_command_is_read_by_a_late_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a last look is over before the loop has looked, as on a machine that does much else."""
    monkeypatch.setattr(entered_process, "DRAIN_S", 0.0)
    run = await asyncio.create_subprocess_exec("sleep", "60", env={**os.environ, TAG: TAG_OF_RUN})
    proc = os.open(f"/proc/{run.pid}", os.O_RDONLY)
    try:
        command = StartCommand(argv=["sh", "-c", "echo out; echo err >&2; exit 7"])
        entered = await EnteredProcess.start(proc, TAG_OF_RUN, command)
        ended = asyncio.Event()
        entered.on_end(ended.set)
        await asyncio.wait_for(ended.wait(), 20)
        heard = {1: b"", 2: b""}

        async def deliver(stream: int, data: bytes) -> None:
            heard[stream] += data

        assert await entered.carry(deliver) == CommandExit(code=7)
        assert heard == {1: b"out\n", 2: b"err\n"}
    finally:
        os.close(proc)
        run.kill()
        await run.wait()
