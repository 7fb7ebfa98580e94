"""What the health of a node needs to remember over restarts of its agent, beyond the journal: a small file that may be lost. Lost,
the node is examined anew; nothing is believed to be well for the lack of it.
"""

import contextlib
from pathlib import Path

import msgspec


class Kept(msgspec.Struct, kw_only=True):
    """Of one boot; of another one only `gpus` counts."""

    boot_id: str = ""
    #: The preflight was passed, and has not failed since.
    passed: bool = False
    #: The newest record of the kernel's log that was read; -1: none.
    kmsg: int = -1
    #: The most GPUs that this machine was seen to have.
    gpus: int = 0


def load(path: Path, boot_id: str) -> Kept:
    """What is known under this boot."""
    kept = Kept()
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    return kept if kept.boot_id == boot_id else Kept(boot_id=boot_id, gpus=kept.gpus)


def save(path: Path, kept: Kept) -> None:
    """Whole or not at all; a disk that refuses is no reason to stop."""
    new = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        new.write_bytes(msgspec.json.encode(kept))
        new.replace(path)
