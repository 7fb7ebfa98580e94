"""The test of a GPU against a played driver, whose memory is a dictionary; and the program that runs it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_agent.node.health import gpu_test
from fairlead_agent.node.health.gpu_test import MIB, SOURCE, CudaError, LibCuda, Result, test_peers, word_at
from fairlead_agent.node.health.gpu_test import test_gpu as examine

test_peers.__test__ = False  # type: ignore[attr-defined]  # pytest must not take them for tests
#: A played word stands for so many: memory of a mebibyte is four words.
THIN = MIB // 4


class PlayedDriver:
    """Two GPUs with three mebibytes each; `rots` are words that do not keep what is written."""

    def __init__(self, *, rots: set[int] = frozenset(), refuses: str = "") -> None:  # type: ignore[assignment]
        self.words: dict[int, int] = {}
        self.rots, self.refuses = rots, refuses
        self.next = 0
        self.calls: list[str] = []

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.refuses:
            raise CudaError(f"{name}: CUDA_ERROR_UNKNOWN (999)")

    def count(self) -> int:
        return 2

    def open(self, index: int) -> None:
        self._called("open")

    def free_bytes(self) -> int:
        return 3 * MIB + MIB // 2

    def allocate(self, size: int) -> int:
        self._called("allocate")
        self.next += max(size, MIB)
        return self.next - max(size, MIB)

    def zero(self, pointer: int, words: int) -> None:
        self.words[pointer] = 0

    def launch(self, kernel: str, *arguments: int, words: int) -> None:
        self._called(kernel)
        buffer, count, seed = arguments[:3]
        assert count == words
        for index in range(0, count, THIN):
            at = buffer + 4 * index
            if kernel == "fill":
                self.words[at] = word_at(index, seed) ^ (at in self.rots)
            elif self.words[at] != word_at(index, seed):
                self.words[arguments[3]] += 1

    def read_word(self, pointer: int) -> int:
        return self.words[pointer]

    def copy_to_peer(self, pointer: int, index: int, other: int, other_index: int, size: int) -> None:
        self._called("copy")
        for at in range(0, size, 4 * THIN):
            self.words[other + at] = self.words[pointer + at]


def seconds() -> Iterator[float]:
    at = 0.0
    while True:
        yield at
        at += 1.0


def run(driver: PlayedDriver, lasting: float = 2.5) -> Result:
    clock = seconds()
    return examine(driver, 0, lasting, lambda: next(clock))


def test_a_good_gpu_passes_for_as_long_as_it_is_tried() -> None:
    """All that is free but a tenth, filled and read back with another seed each time."""
    driver = PlayedDriver()
    assert run(driver) == Result(3, 3, "")
    assert driver.calls.count("fill") == driver.calls.count("check") == 3


def test_the_gpu_test_runs_at_least_once() -> None:
    """Even if its time is 0."""
    assert run(PlayedDriver(), 0.0).rounds == 1


def test_one_corrupted_memory_cell_fails_the_test() -> None:
    """The number of corrupted words is reported."""
    result = run(PlayedDriver(rots={MIB + 4 * THIN}))
    assert result.failure == f"1 of {3 * MIB // 4} words were wrong in round 1"


@pytest.mark.parametrize("call", ["open", "allocate", "fill", "check"])
def test_a_driver_that_refuses_fails_it(call: str) -> None:
    """With the call and the driver's word for it."""
    assert run(PlayedDriver(refuses=call)).failure == f"{call}: CUDA_ERROR_UNKNOWN (999)"


def test_copies_between_gpus() -> None:
    """Round about; one that fails is named with both ends."""
    assert test_peers(PlayedDriver(), 2) == [] == test_peers(PlayedDriver(), 1)
    failures = test_peers(PlayedDriver(refuses="copy"), 2)
    assert [each.partition(":")[0] for each in failures] == ["from GPU 0 to GPU 1", "from GPU 1 to GPU 0"]


def test_the_program_says_that_there_is_no_driver() -> None:
    """Exit code 2 and a sentence, in JSON."""
    try:
        LibCuda(SOURCE)
    except CudaError:
        pass
    else:
        pytest.skip("there is a CUDA driver on this machine: `make test-gpu` tries it")
    done = subprocess.run(
        [sys.executable, "-m", "fairlead_agent.node.health.gpu_test"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "there is no CUDA driver" in json.loads(done.stdout)["error"]


def test_the_kernels_are_plain_text_for_every_gpu_since_maxwell() -> None:
    """The driver compiles them: no binary is shipped."""
    assert SOURCE.isascii() and SOURCE.count(".visible .entry") == 2 and ".target sm_50" in SOURCE
    assert all(word_at(index, 1) != word_at(index, 2) for index in range(1000))
    assert not list(Path(gpu_test.__file__).parent.glob("*.cubin"))
