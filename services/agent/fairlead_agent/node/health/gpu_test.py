"""Test of computing and memory of the GPUs that this process sees, and of copies between them; and kernels of the GPU
test, as text that the driver itself compiles: no part of CUDA's toolkit is needed or shipped. It is a program of its
own, since a GPU that hangs must not hang any other process.

    CUDA_VISIBLE_DEVICES=GPU-… python -m fairlead_agent.node.health.gpu_test --seconds 5

Prints one line of JSON, {"gpus": [{"rounds": 12, "mib": 4096, "failure": ""}, …], "peers": ["…"]}, in the order of the
GPUs; with --peers only the copies. Memory in use on a GPU is left alone: only free memory is tested.

Each thread takes words of a buffer, a grid apart. A word's value follows from its index and a seed by `ROUNDS` steps of
a linear congruence, x = x * 1664525 + 1013904223 modulo 2**32 (Knuth's and Lewis'; exact, so one wrong bit anywhere is
seen), then spread by an exclusive or with itself. `fill` writes the computed values; `check` computes them again,
compares them with memory, and counts the differences.

The few functions of the CUDA driver that the test needs are called over ctypes, with names and types of NVIDIA's driver API.
`Driver` is the interface that the test is written against, so that unit tests can replace the driver.
"""

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple, Protocol

LIBRARIES = ("libcuda.so.1", "libcuda.so")


class CudaError(Exception):
    """A call has failed; the message has its name and the driver's words."""


class Driver(Protocol):
    """GPUs visible to one process, by index."""

    def count(self) -> int: ...
    def open(self, index: int) -> None:
        """Make the GPU's context the current one."""
        ...

    def free_bytes(self) -> int: ...
    def allocate(self, size: int) -> int: ...
    def zero(self, pointer: int, words: int) -> None: ...
    def launch(self, kernel: str, *arguments: int, words: int) -> None:
        """Run one of the kernels and wait for it. Arguments as the kernels take them: addresses and counts of 64 bits, seeds of 32."""
        ...

    def read_word(self, pointer: int) -> int: ...
    def copy_to_peer(self, pointer: int, index: int, other: int, other_index: int, size: int) -> None:
        """From one GPU's memory into another's, and wait."""
        ...


class LibCuda:
    """The real one. Raises CudaError where there is no driver."""

    def __init__(self, source: str) -> None:
        self._cuda = _library()
        self._source = source.encode()
        self._contexts: dict[int, c_void_p] = {}
        self._kernels: dict[tuple[int, str], c_void_p] = {}
        self._current = -1
        self._call("cuInit", c_uint(0))

    def count(self) -> int:
        """GPUs that this process sees."""
        found = c_int()
        self._call("cuDeviceGetCount", ctypes.byref(found))
        return found.value

    def open(self, index: int) -> None:
        """The GPU's primary context, with the kernels compiled."""
        if index not in self._contexts:
            device, context = c_int(), c_void_p()
            self._call("cuDeviceGet", ctypes.byref(device), c_int(index))
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[index] = context
            self._call("cuCtxSetCurrent", context)
            module = c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), c_char_p(self._source))
            for name in ("fill", "check"):
                kernel = c_void_p()
                self._call("cuModuleGetFunction", ctypes.byref(kernel), module, c_char_p(name.encode()))
                self._kernels[(index, name)] = kernel
        self._call("cuCtxSetCurrent", self._contexts[index])
        self._current = index

    def free_bytes(self) -> int:
        """Memory that is left."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size: int) -> int:
        """Memory until the process ends."""
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), c_size_t(size))
        return pointer.value

    def zero(self, pointer: int, words: int) -> None:
        """Set words to 0."""
        self._call("cuMemsetD32_v2", c_uint64(pointer), c_uint(0), c_size_t(words))

    def launch(self, kernel: str, *arguments: int, words: int) -> None:
        """Run one of the kernels and wait for it, as `Driver.launch` specifies."""
        kinds = (c_uint64, c_uint64, c_uint, c_uint64)
        values = [kind(value) for kind, value in zip(kinds, arguments, strict=False)]
        blocks = max(1, min(4096, words // 256))
        self._call(
            "cuLaunchKernel",
            self._kernels[(self._current, kernel)],
            *map(c_uint, (blocks, 1, 1, 256, 1, 1, 0)),
            c_void_p(),
            _pointers(values),
            c_void_p(),
        )
        self._call("cuCtxSynchronize")

    def read_word(self, pointer: int) -> int:
        """Return one word of the GPU's memory."""
        word = c_uint()
        self._call("cuMemcpyDtoH_v2", ctypes.byref(word), c_uint64(pointer), c_size_t(4))
        return word.value

    def copy_to_peer(self, pointer: int, index: int, other: int, other_index: int, size: int) -> None:
        """Copy from one GPU's memory into another's and wait, as `Driver.copy_to_peer` specifies."""
        source, target = self._contexts[index], self._contexts[other_index]
        self._call("cuMemcpyPeer", c_uint64(other), target, c_uint64(pointer), source, c_size_t(size))
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = c_char_p()
            self._cuda.cuGetErrorName(c_int(code), ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'error').decode()} ({code})")


def _pointers(values: Sequence[Any]) -> Any:
    """The array of addresses of arguments that a launch takes."""
    return (c_void_p * len(values))(*[ctypes.cast(ctypes.pointer(value), c_void_p) for value in values])


def _library() -> Any:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError(f"there is no CUDA driver: none of {', '.join(LIBRARIES)} can be loaded")


ROUNDS = 32
MULTIPLIER, INCREMENT = 1664525, 1013904223


def word_at(index: int, seed: int) -> int:
    """Return the value that both kernels compute for one word: the model that tests compare with."""
    value = (index ^ seed) & 0xFFFFFFFF
    for _ in range(ROUNDS):
        value = (value * MULTIPLIER + INCREMENT) & 0xFFFFFFFF
    return value ^ (value >> 16)


_HEAD = """.version 6.0
.target sm_50
.address_size 64
"""

_COMPUTE = f"""
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mov.u32 %r5, %nctaid.x;
    mul.lo.u32 %r6, %r5, %r2;
    cvt.u64.u32 %rd3, %r4;
    cvt.u64.u32 %rd4, %r6;
NEXT:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra DONE;
    cvt.u32.u64 %r7, %rd3;
    xor.b32 %r8, %r7, %r20;
    mov.u32 %r9, 0;
ROUND:
    mad.lo.u32 %r8, %r8, {MULTIPLIER}, {INCREMENT};
    add.u32 %r9, %r9, 1;
    setp.lt.u32 %p2, %r9, {ROUNDS};
    @%p2 bra ROUND;
    shr.u32 %r10, %r8, 16;
    xor.b32 %r8, %r8, %r10;
    shl.b64 %rd5, %rd3, 2;
    add.u64 %rd6, %rd1, %rd5;
"""

_DECLARE = """
    .reg .pred %p<4>;
    .reg .b32 %r<24>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [buffer];
    ld.param.u64 %rd2, [words];
    ld.param.u32 %r20, [seed];
"""

_AGAIN = """
    add.u64 %rd3, %rd3, %rd4;
    bra NEXT;
DONE:
    ret;
}
"""

SOURCE = (
    _HEAD
    + "\n.visible .entry fill(.param .u64 buffer, .param .u64 words, .param .u32 seed)\n{"
    + _DECLARE + _COMPUTE
    + "    st.global.u32 [%rd6], %r8;\n"
    + _AGAIN
    + "\n.visible .entry check(.param .u64 buffer, .param .u64 words, .param .u32 seed, .param .u64 wrong)\n{"
    + _DECLARE + "    ld.param.u64 %rd7, [wrong];\n" + _COMPUTE
    + "    ld.global.u32 %r11, [%rd6];\n    setp.eq.u32 %p3, %r11, %r8;\n    @%p3 bra SAME;\n"
    + "    atom.global.add.u32 %r12, [%rd7], 1;\nSAME:\n"
    + _AGAIN
)  # fmt: skip


MIB = 2**20
#: Of a GPU's free memory, in thousandths, and at most; a piece is what one kernel takes.
SHARE_PER_MILLE = 900
PIECE_BYTES = 1024 * MIB
PEER_BYTES = 16 * MIB


class Result(NamedTuple):
    """Test result of one GPU."""

    rounds: int
    mib: int
    failure: str


def test_gpu(driver: Driver, index: int, seconds: float, clock: Callable[[], float]) -> Result:
    """Fill all free memory and read it back, again and again with other seeds, until the time is over (once at least)."""
    rounds = size = 0
    try:
        driver.open(index)
        wrong_at = driver.allocate(4)
        buffers = _allocate(driver)
        size = sum(size for _, size in buffers)
        end = clock() + seconds
        while rounds == 0 or clock() < end:
            driver.zero(wrong_at, 1)
            for pointer, each in buffers:
                driver.launch("fill", pointer, each // 4, rounds + 1, words=each // 4)
            for pointer, each in buffers:
                driver.launch("check", pointer, each // 4, rounds + 1, wrong_at, words=each // 4)
            rounds += 1
            if wrong := driver.read_word(wrong_at):
                return Result(rounds, size // MIB, f"{wrong} of {size // 4} words were wrong in round {rounds}")
    except CudaError as error:
        return Result(rounds, size // MIB, str(error))
    return Result(rounds, size // MIB, "")


def _allocate(driver: Driver) -> list[tuple[int, int]]:
    """[(address, bytes)] of most of what is free, in pieces: what another takes meanwhile is no fault."""
    free_bytes = driver.free_bytes() * SHARE_PER_MILLE // 1000
    found: list[tuple[int, int]] = []
    while free_bytes >= MIB:
        size = min(free_bytes, PIECE_BYTES) // MIB * MIB
        try:
            found.append((driver.allocate(size), size))
        except CudaError:
            if not found:
                raise
            break
        free_bytes -= size
    if not found:
        raise CudaError("not a MiB of its memory is free")
    return found


def test_peers(driver: Driver, gpus: int) -> list[str]:
    """Each GPU to the next, round about: what arrives must be what was sent. Says what has failed."""
    failures: list[str] = []
    words = PEER_BYTES // 4
    for index in range(gpus if gpus > 1 else 0):
        other = (index + 1) % gpus
        try:
            driver.open(other)
            target, wrong_at = driver.allocate(PEER_BYTES), driver.allocate(4)
            driver.zero(wrong_at, 1)
            driver.open(index)
            source = driver.allocate(PEER_BYTES)
            driver.launch("fill", source, words, index + 1, words=words)
            driver.copy_to_peer(source, index, target, other, PEER_BYTES)
            driver.open(other)
            driver.launch("check", target, words, index + 1, wrong_at, words=words)
            if wrong := driver.read_word(wrong_at):
                failures.append(f"from GPU {index} to GPU {other} {wrong} of {words} words arrived wrong")
        except CudaError as error:
            failures.append(f"from GPU {index} to GPU {other}: {error}")
    return failures


def main() -> int:
    """Test what is seen; 0 where all is well, 1 where not, 2 where nothing could be tested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each GPU")
    parser.add_argument("--peers", action="store_true", help="only copies between GPUs")
    options = parser.parse_args()
    try:
        driver = LibCuda(SOURCE)
        count = driver.count()
    except CudaError as error:
        print(json.dumps({"error": str(error)}))  # noqa: T201 -- a command
        return 2
    peers = test_peers(driver, count) if options.peers else []
    seen = 0 if options.peers else count
    gpus = [test_gpu(driver, index, options.seconds, time.monotonic) for index in range(seen)]
    print(json.dumps({"gpus": [each._asdict() for each in gpus], "peers": peers}))  # noqa: T201 -- a command
    return 1 if peers or any(each.failure for each in gpus) else 0


if __name__ == "__main__":
    sys.exit(main())
