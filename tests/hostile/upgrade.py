"""Upgrades: the data of an older version, with a job that runs and one that waits, taken over by this one.

The older sources come from the clone's history; a clone without it names that as its reason. Start at `upgrade`.
"""

import os
import re
import subprocess
import time
from pathlib import Path

from fairlead_schemas.wire.commit import VERSION
from tests.hostile.load import Load, read_marks
from tests.hostile.outcome import Row, check_load, joined, row
from tests.hostile.stack import Stack

REPOSITORY = Path(__file__).parents[2]
#: Commits before this one whose data is taken over, in turn.
BEHIND = (100, 300)
#: Directories of the sources, as an installation has them on its path.
PARTS = (
    "schemas",
    "bus",
    "rights",
    "replay",
    "cli",
    *(f"services/{name}" for name in ("queue", "placer", "agent", "gateway", "telemetry", "access", "storage")),
)
WORK_S = 6.0
ENDED_S = 120.0


def upgrade(directory: Path, tries: int, seed: int) -> list[Row]:
    """Continue from an older version's data, `tries` times."""
    rows: list[Row] = []
    for number in range(tries):
        behind, place = BEHIND[number % len(BEHIND)], directory / f"upgrade-{number}"
        if unfit := _checkout(behind, place / "older"):
            rows.append(row("upgrade", f"data of {behind} commits before: skipped: {unfit}", 0, []))
        else:
            rows += _one(place, behind)
    return joined(rows)


def _checkout(behind: int, target: Path) -> str:
    """Write the sources of an older commit to a directory; return the reason where there are none, else ""."""
    target.mkdir(parents=True)
    git = ["git", "-C", str(REPOSITORY)]
    archive = subprocess.run([*git, "archive", f"HEAD~{behind}"], capture_output=True, check=False)
    if archive.returncode:
        return f"this clone has no commit {behind} before its newest (git fetch --unshallow)"
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=True)
    return ""


def _one(place: Path, behind: int) -> list[Row]:
    """Work with the older version, stop it with a running and a waiting job, and continue with this one."""
    path = os.pathsep.join(str(place / "older" / part) for part in PARTS)
    older, newer = Stack(place / "data", environment={"PYTHONPATH": path}), Stack(place / "data")
    load = Load(older, place / "jobs")
    try:
        older.up()
        load.start()
        time.sleep(WORK_S)
        load.stop()
        with older.client() as client:
            running = client.submit(_job(place / "ran", sleep=45)).id or ""
            waiting = client.submit({**_job(place / "waited", sleep=0), "nodes": newer.nodes + 1}).id or ""
            older.until(lambda: client.job(running).state == "running", "a job runs")
        older.fairlead("down")
        if log_format(place / "older") != VERSION:
            return [_refused(newer, behind)]
        newer.up()
        broken: list[str] = []
        with newer.client() as client:
            states = {client.job(running).state, client.job(waiting).state}
            broken += (
                []
                if states <= {"running", "succeeded", "queued", "offered"}
                else [f"states after the upgrade: {states}"]
            )
            (ended,) = client.wait([running], timeout_s=ENDED_S)
            starts = (place / "ran").read_text().count("start")
            if ended.state != "succeeded" or starts != 1:
                broken.append(f"the running job is {ended.state} after {starts} starts")
            client.cancel(waiting)
            client.wait([waiting], timeout_s=ENDED_S)
        load.stack = newer
        rows = check_load("upgrade", newer, load)
        newer.down()
        counted = len(read_marks(load.directory).starts)
        what = f"data of {behind} commits before, with a running and a waiting job"
        return [row("upgrade", what, 1, broken, f"{counted} attempts before"), *rows]
    finally:
        load.stop()
        newer.end()
        older.end()


def log_format(sources: Path) -> int:
    """Return the version of the log's format that these sources read and write."""
    (path,) = (sources / "schemas" / "fairlead_schemas").rglob("commit.py")  # it was moved once
    text = path.read_text()
    return int(re.findall(r"^VERSION = (\d+)$", text, re.MULTILINE)[0])


def _refused(newer: Stack, behind: int) -> Row:
    """Start this version on a log of another format: a line says why it does not, and what to do."""
    done = newer.up(check=False)
    said = done.stdout + done.stderr
    broken = [] if done.returncode else ["a log of another format was taken"]
    if f"this version of Fairlead reads format {VERSION} alone: start with an empty data directory" not in said:
        broken.append(f"no line says why: {said[-300:]}")
    return row("upgrade", f"data of {behind} commits before, of another log format: refused with a line", 1, broken)


def _job(mark: Path, sleep: int) -> dict[str, object]:
    words = f"echo start >>{mark}; sleep {sleep}"
    return {"command": ["/bin/sh", "-c", words], "resources": {"nvidia.com/gpu": 1, "cpu": "100m", "memory": "16Mi"}}
