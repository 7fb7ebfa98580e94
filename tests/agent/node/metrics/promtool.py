"""promtool of Debian's package `prometheus`, run on what we write."""

import os
import shutil
import subprocess

import pytest

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None and not os.environ.get("FAIRLEAD_NEED_PROMETHEUS"),
    reason="promtool is not installed (Debian: apt install prometheus)",
)


def complaints(exposition: bytes) -> list[str]:
    """What `promtool check metrics` has to say, a line each. A page that it cannot read fails here."""
    ran = subprocess.run(["promtool", "check", "metrics"], input=exposition, capture_output=True, timeout=60)
    assert ran.returncode in (0, 3), ran.stderr.decode()  # 3: read, with remarks on style
    return sorted(ran.stderr.decode().splitlines())
