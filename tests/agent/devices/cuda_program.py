"""A program that uses a real GPU through the driver's own library: no toolkit, no framework. Run as a job by the GPU tests.

python cuda_program.py list               the UUIDs of the GPUs that it sees, one per line
python cuda_program.py hold MIB SECONDS   takes so much memory on the first one and writes to it, then waits
"""

import ctypes
import sys
import time
import uuid
from typing import Any

NO_DEVICE = 100


def check(what: str, code: int) -> None:
    """Raises SystemExit with CUDA's number."""
    if code:
        raise SystemExit(f"{what}: CUDA error {code}")


def uuids(cuda: Any) -> list[str]:
    """As the driver lists them to this process; none where it may see none."""
    code = cuda.cuInit(0)
    if code == NO_DEVICE:
        return []
    check("cuInit", code)
    count = ctypes.c_int()
    check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    found: list[str] = []
    for index in range(count.value):
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), index))
        check("cuDeviceGetUuid", cuda.cuDeviceGetUuid(raw, device))
        found.append(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
    return found


def hold(cuda: Any, mib: int, seconds: float) -> None:
    """Take the memory, and keep the GPU a little busy."""
    check("cuInit", cuda.cuInit(0))
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0))
    check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    size = ctypes.c_size_t(mib << 20)
    check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(memory), size))
    print(f"holds {mib} MiB", flush=True)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        check("cuMemsetD8", cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(7), size))
        check("cuCtxSynchronize", cuda.cuCtxSynchronize())
        time.sleep(0.05)


def main() -> None:
    """Exit code 0, or 1 with CUDA's error."""
    cuda = ctypes.CDLL("libcuda.so.1")
    if sys.argv[1] == "list":
        print("".join(f"{each}\n" for each in uuids(cuda)), end="")
    else:
        hold(cuda, int(sys.argv[2]), float(sys.argv[3]))


if __name__ == "__main__":
    main()
