"""docs/reference/settings.md names every setting that the code reads, and none that it does not."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What a job, or a program for drained nodes, finds in its environment is not a setting.
TOLD = {
    "FAIRLEAD_JOB",
    "FAIRLEAD_ATTEMPT",
    "FAIRLEAD_RANK",
    "FAIRLEAD_RUN",
    "FAIRLEAD_GPUS",
    "FAIRLEAD_HOSTFILE",
    "FAIRLEAD_LAUNCH",
    "FAIRLEAD_ARRAY_INDEX",
    "FAIRLEAD_GPUS_SIMULATED",
    "FAIRLEAD_CPUS_SIMULATED",
    "FAIRLEAD_SIMULATED_GPUS",
    "FAIRLEAD_GPU_SHARING",
    "FAIRLEAD_STOP_AFTER",
    "FAIRLEAD_CHECKPOINT_FILE",
    "FAIRLEAD_RESTARTED",
    "FAIRLEAD_STOP_REASON",
    "FAIRLEAD_DRAINED_BY",
    "FAIRLEAD_DRAINED_FOR",
}
NAME = re.compile(r"FAIRLEAD_[A-Z]+(?:_[A-Z]+)*|NATS_URL\b")


def test_every_setting_has_its_row() -> None:
    """A setting without documentation cannot be found."""
    code = "".join(
        path.read_text() for part in ("bus", "services", "replay", "cli") for path in (ROOT / part).rglob("*.py")
    )
    read = set(re.findall(r'"(FAIRLEAD_[A-Z_]+|NATS_URL)"', code)) - TOLD
    page = set(NAME.findall((ROOT / "docs" / "reference" / "settings.md").read_text()))
    assert read == page
