"""A command run beside a process: in its directory, with the environment that it was started with, in a session of its own.

Both are read from /proc, so that a run which an earlier agent process has started is no different. The tag in the
environment makes the command part of the run: a stop that sweeps up what is left of it finds the command, too.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlead_agent.runtimes.port import SAID_BYTES_MAX, Executed


async def run_beside(pid: int, argv: Sequence[str], timeout_s: float, more: Mapping[str, str]) -> Executed:
    """Run it to its end, or kill it after `timeout_s`. A process that is gone, or a program that is not there, is said."""
    try:
        environ = await asyncio.to_thread(Path(f"/proc/{pid}/environ").read_bytes)
        variables = (each.partition(b"=") for each in environ.split(b"\0") if b"=" in each)
        env = {os.fsdecode(name): os.fsdecode(value) for name, _, value in variables} | dict(more)
        with tempfile.TemporaryFile() as said:
            child = await asyncio.create_subprocess_exec(
                *argv, env=env, cwd=f"/proc/{pid}/cwd", stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
            code = await _wait(child, timeout_s)
            said.seek(max(0, said.seek(0, os.SEEK_END) - SAID_BYTES_MAX))
            return Executed(code, said.read().decode(errors="replace").strip())
    except (OSError, ValueError) as error:
        return Executed(None, str(error))


async def _wait(child: asyncio.subprocess.Process, timeout_s: float) -> int | None:
    """Its exit code; None where it had to be killed, or was by somebody else."""
    try:
        async with asyncio.timeout(timeout_s):
            code = await child.wait()
        return code if code >= 0 else None
    except TimeoutError:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
