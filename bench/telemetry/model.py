"""Model of a day of GPUs, drawn from a seed: idle ones, training on plateaus, spiky inference. Second by second, 15 metrics.

A model, no recording: shapes and noise are chosen after what such jobs are known to show. Power, energy and traffic have the full noise
of their units (milliwatts, millijoules, bytes), which is what costs room; a model that rounded them would flatter.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SECONDS = 86_400
type Numbers = NDArray[np.int64]
#: The columns of `samples` that are reported.
METRICS = (
    "utilization_pct",
    "memory_used_mib",
    "memory_busy_pct",
    "power_mw",
    "energy_mj",
    "temperature_c",
    "memory_temperature_c",
    "sm_clock_mhz",
    "pcie_tx_bytes_s",
    "pcie_rx_bytes_s",
    "nvlink_tx_kib",
    "nvlink_rx_kib",
    "sm_permille",
    "tensor_permille",
    "dram_permille",
)
#: Parts of a day that a GPU spends idle, training, and serving; and of the length of one job in seconds, least and most.
_SHARES = {"idle": 0.3, "training": 0.5, "inference": 0.2}
_LENGTHS = {"idle": (600, 14_400), "training": (3_600, 43_200), "inference": (3_600, 28_800)}


def gpu_day(seed: int) -> tuple[dict[str, Numbers], list[str]]:
    """({metric: its value at each second of a day}, the run at each second) of one GPU."""
    chance = np.random.default_rng(seed)
    load, memory, runs = np.empty(SECONDS), np.empty(SECONDS, dtype=np.int64), list[str]()
    at = 0
    while at < SECONDS:
        kind = str(chance.choice(list(_SHARES), p=list(_SHARES.values())))
        length = min(SECONDS - at, int(chance.integers(*_LENGTHS[kind])))
        load[at : at + length] = _LOADS[kind](chance, length)
        memory[at : at + length] = 4 if kind == "idle" else int(chance.integers(20_000, 78_000))
        runs += [""] * length if kind == "idle" else [f"{seed * 1000 + at}.1"] * length
        at += length
    return _told(chance, load, memory), runs


def _idle(chance: np.random.Generator, length: int) -> NDArray[np.float64]:
    return np.zeros(length)


def _training(chance: np.random.Generator, length: int) -> NDArray[np.float64]:
    """High, with noise of a few percent, and down while it saves each quarter to half an hour."""
    load = np.clip(chance.normal(chance.uniform(0.75, 0.98), 0.015, length), 0, 1)
    every = int(chance.integers(900, 1800))
    for begin in range(every, length, every):
        load[begin : begin + 20] = 0.02
    return load


def _inference(chance: np.random.Generator, length: int) -> NDArray[np.float64]:
    """Low, with requests that come in bursts."""
    bursts = chance.random(length) < 0.15
    return np.where(bursts, chance.uniform(0.2, 0.9, length), 0.0)


_LOADS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "idle": _idle,
    "training": _training,
    "inference": _inference,
}


def _told(chance: np.random.Generator, load: NDArray[np.float64], memory: Numbers) -> dict[str, Numbers]:
    def noisy(base: NDArray[np.float64], spread: float) -> NDArray[np.float64]:
        return np.maximum(0, base * (1 + chance.normal(0, spread, SECONDS)))

    busy = load > 0
    power = 55_000 + chance.normal(0, 300, SECONDS) + noisy(load * 550_000, 0.02)
    warm = _smooth(30 + load * 40, 60)
    traffic = noisy(load * 1.5e9, 0.1)
    links = np.where(load > 0.5, noisy(load * 20 * 2**20, 0.05), 0)
    whole: dict[str, NDArray[np.float64]] = {
        "utilization_pct": np.clip(load * 100, 0, 100), "memory_busy_pct": np.clip(noisy(load * 45, 0.03), 0, 100),
        "power_mw": power, "energy_mj": np.cumsum(power) + chance.integers(10**9, 10**12), "temperature_c": warm,
        "memory_temperature_c": warm + 6, "sm_clock_mhz": np.where(busy, 1980 - 15 * np.round(chance.exponential(1.0, SECONDS)), 345),
        "pcie_tx_bytes_s": traffic, "pcie_rx_bytes_s": noisy(load * 3e9, 0.1), "nvlink_tx_kib": np.cumsum(links),
        "nvlink_rx_kib": np.cumsum(np.where(links > 0, noisy(links, 0.01), 0)), "sm_permille": np.clip(noisy(load * 900, 0.02), 0, 1000),
        "tensor_permille": np.clip(noisy(load * 400, 0.03), 0, 1000), "dram_permille": np.clip(noisy(load * 300, 0.03), 0, 1000),
    }  # fmt: skip
    return {name: memory if name == "memory_used_mib" else whole[name].astype(np.int64) for name in METRICS}


def _smooth(values: NDArray[np.float64], seconds: int) -> NDArray[np.float64]:
    """Heat follows load slowly."""
    return np.convolve(values, np.full(seconds, 1 / seconds), mode="same")
