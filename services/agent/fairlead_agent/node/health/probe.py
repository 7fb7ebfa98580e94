"""Tries out what the preflight judges: each GPU computes and remembers, in a process of its own that may hang."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from fairlead_agent.devices.port import Devices, GpuHealth

#: What a test may take beyond the time that it computes: loading the driver, a context, and its end.
PATIENCE_S = 40.0
MODULE = "fairlead_agent.node.health.gpu_test"


class _Gpu(msgspec.Struct):
    failure: str


class _Answer(msgspec.Struct):
    gpus: list[_Gpu] = []
    peers: list[str] = []
    error: str = ""


async def test_gpus(devices: Devices, gpus: Sequence[str], seconds: float) -> dict[str, str]:
    """{GPU: why it has failed, "" where it has passed}, all at once. Played ones fail by what is played of them."""
    if devices.simulated:
        return {gpu.uuid: played_test(gpu) for gpu in devices.health() if gpu.uuid in gpus}
    if devices.name != "nvml" or seconds <= 0:
        return {}
    answers = await asyncio.gather(*(_run(gpu, seconds) for gpu in gpus))
    return {gpu: _failure(answer, answer.gpus) for gpu, answer in zip(gpus, answers, strict=True)}


async def test_peers(devices: Devices, gpus: Sequence[str]) -> tuple[str, ...]:
    """Copies from each GPU to the next; what has failed."""
    if devices.simulated or devices.name != "nvml" or len(gpus) < 2:
        return ()
    answer = await _run(",".join(gpus), 0.0, "--peers")
    return tuple(answer.peers) or ((answer.error,) if answer.error else ())


def played_test(gpu: GpuHealth) -> str:
    """A simulated GPU passes, unless its script says that it is lost, has lost data, or waits for a reset."""
    if gpu.lost:
        return gpu.why or "the GPU is lost"
    if gpu.ecc_volatile_uncorrectable:
        return f"{gpu.ecc_volatile_uncorrectable} words were wrong (simulated)"
    return "" if gpu.recovery in (None, "none") else f"it waits for {gpu.recovery} (simulated)"


def _failure(answer: _Answer, gpus: Collection[_Gpu]) -> str:
    if answer.error:
        return answer.error
    return next((each.failure for each in gpus if each.failure), "") if gpus else "the test saw no GPU"


async def _run(visible: str, seconds: float, *more: str) -> _Answer:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        MODULE,
        "--seconds",
        str(seconds),
        *more,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await _answered(process, seconds + PATIENCE_S)


async def _answered(process: Any, timeout_s: float) -> _Answer:
    try:
        async with asyncio.timeout(timeout_s):
            out, _ = await process.communicate()
    except TimeoutError:
        return _Answer(error=f"the test did not end within {timeout_s:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    try:
        return msgspec.json.decode(out, type=_Answer)
    except msgspec.MsgspecError:
        return _Answer(error=f"the test ended with {process.returncode} and no answer")
