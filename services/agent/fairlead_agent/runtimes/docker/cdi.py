"""Which devices this machine's CDI specifications offer to containers."""

import contextlib
import json
from pathlib import Path


def cdi_devices() -> frozenset[str]:
    """Names that the CDI specifications of this machine list (JSON ones; nvidia-ctk writes them with --format=json)."""
    names: set[str] = set()
    for path in [*Path("/etc/cdi").glob("*.json"), *Path("/var/run/cdi").glob("*.json")]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            spec = json.loads(path.read_bytes())
            names.update(f"{spec['kind']}={device['name']}" for device in spec["devices"])
    return frozenset(names)
