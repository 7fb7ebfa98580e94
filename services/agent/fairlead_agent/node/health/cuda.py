"""The few functions of the CUDA driver that the GPU test needs, over ctypes. Names and types after NVIDIA's driver API; every
call but these is left alone. `Driver` is what the test is written against, so that tests can play it.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Protocol

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
        """Run one of the kernels and wait for it. Arguments as in gpu_test.py: addresses and counts of 64 bits, seeds of 32."""
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
