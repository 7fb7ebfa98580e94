"""Damage to files of a stopped stack: flipped bits, cuts, garbage, removed files. Every place is drawn from a generator.

Functions take the stack's data directory. Nothing here knows what should happen then (`damage.py`).
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

type Hurt = Callable[[Path, random.Random], None]


def flip(path: Path, rng: random.Random, bits: int = 1) -> None:
    """Flip bits in the middle three quarters of a file."""
    held = bytearray(path.read_bytes())
    for _ in range(bits):
        held[rng.randrange(len(held) // 8, max(len(held) * 7 // 8, len(held) // 8 + 1))] ^= 1 << rng.randrange(8)
    path.write_bytes(held)


def cut(path: Path, rng: random.Random) -> None:
    """Remove the last tenth to half of a file."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - max(1, int(size * (0.1 + 0.4 * rng.random()))))


def garble(path: Path, rng: random.Random) -> None:
    """Replace a file by bytes that mean nothing."""
    path.write_bytes(rng.randbytes(min(max(path.stat().st_size, 64), 65536)))


def stream(data: Path, name: str) -> Path:
    """Return the directory in which the server keeps a stream."""
    return data / "nats" / "store" / "jetstream" / "$G" / "streams" / name


def newest_block(data: Path, name: str) -> Path:
    """Return the largest block file of a stream."""
    return max((stream(data, name) / "msgs").glob("*.blk"), key=lambda path: path.stat().st_size)


def block(name: str, hurt: Callable[[Path, random.Random], None], *, index: bool) -> Hurt:
    """Damage a stream's block file. Without its index, as after a kill, the server reads the blocks itself."""

    def act(data: Path, rng: random.Random) -> None:
        hurt(newest_block(data, name), rng)
        if not index:
            (stream(data, name) / "msgs" / "index.db").unlink(missing_ok=True)

    return act


def remove_block(name: str) -> Hurt:
    """Remove a stream's block file and leave its index."""
    return lambda data, _: newest_block(data, name).unlink()


def remove_stream(*names: str) -> Hurt:
    """Remove streams as a whole."""

    def act(data: Path, rng: random.Random) -> None:
        for name in names:
            shutil.rmtree(stream(data, name))

    return act


def stream_file(name: str, file: str) -> Hurt:
    """Flip a bit of a stream's `meta.inf` or the like."""
    return lambda data, rng: flip(stream(data, name) / file, rng)


def journals(data: Path, rng: random.Random) -> None:
    """Damage the three agents' journals: a flipped bit, the last records gone, the file gone."""
    flip(data / "agent-sim-1" / "journal", rng)
    path = data / "agent-sim-2" / "journal"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: -rng.randint(4, max(4, len(lines) // 2))]))
    (data / "agent-sim-3" / "journal").unlink()


def notes_of_agents(data: Path, rng: random.Random) -> None:
    """Garble the small files next to the agents' journals, and the stack's own note of what runs."""
    for path in [*data.glob("agent-*/lease"), *data.glob("agent-*/health.json"), *data.glob("agent-*/spawned")]:
        garble(path, rng)
    (data / "stack.json").write_bytes(rng.randbytes(200))


def warehouse(data: Path, rng: random.Random) -> None:
    """Damage telemetry's database in one of four ways."""
    path = data / "telemetry" / "warehouse.duckdb"
    rng.choice((_flip_many, cut, garble, _zero_head))(path, rng)


def days(data: Path, rng: random.Random) -> None:
    """Garble telemetry's database and its list of the files of days, so that the one cannot be made from the other."""
    garble(data / "telemetry" / "warehouse.duckdb", rng)
    garble(data / "telemetry" / "days" / "manifest.json", rng)


def _flip_many(path: Path, rng: random.Random) -> None:
    flip(path, rng, 20)


def _zero_head(path: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        file.write(bytes(4096))


def derived(data: Path, rng: random.Random) -> None:
    """Flip bits in the services' snapshots, and remove what the placer had written for the agents."""
    flip(newest_block(data, "OBJ_SNAPSHOT"), rng, 5)
    (stream(data, "OBJ_SNAPSHOT") / "msgs" / "index.db").unlink(missing_ok=True)
    shutil.rmtree(stream(data, "KV_DESIRED"))


def book(path: Path, rng: random.Random) -> str:
    """Garble a line of the oldest checkpoint of a book. Its end is no place: what a broken write left there is passed over."""
    held = path.read_bytes().splitlines(keepends=True)
    held[rng.choice((0, 1, 2, 3, 5))] = b"garbage\n"
    path.write_bytes(b"".join(held))
    return "garbage"


def garble_line(path: Path, rng: random.Random) -> str:
    """Replace a line of a JSON document by garbage. Order and repetition of its lines may mean nothing."""
    held = path.read_bytes().splitlines(keepends=True)
    held[rng.randrange(len(held))] = b"garbage\n"
    path.write_bytes(b"".join(held))
    return "garbage"


def lines(path: Path, rng: random.Random) -> str:
    """Damage a file of lines (an exported log) in one of six ways; return which."""
    held = path.read_bytes().splitlines(keepends=True)
    at = rng.randrange(len(held) - 1)
    way = rng.choice(("flip", "cut", "swap", "drop", "double", "garbage"))
    match way:
        case "flip":
            flip(path, rng)
            return way
        case "cut":
            cut(path, rng)
            return way
        case "swap":
            held[at], held[at + 1] = held[at + 1], held[at]
        case "drop":
            del held[at]
        case "double":
            held.insert(at, held[at])
        case _:
            held[at] = b"garbage\n"
    path.write_bytes(b"".join(held))
    return way
