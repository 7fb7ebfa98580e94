"""Damaged files: each must be reported by the services themselves within a minute, or do no harm at all.

A stack works for a while and is stopped; each try damages a copy of its directory and starts that. Two tries damage a
stream under a running stack, between a kill of its server and the server's next start. Start at `damage`.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from fairlead.stack import state
from tests.hostile import damaged_files as files
from tests.hostile.load import Load
from tests.hostile.outcome import Row, joined, lost_or_open, row
from tests.hostile.stack import Stack, send

#: The bound of the promise.
REPORTED_S = 60.0
WORK_S = 6.0
PROBES = 6
ENDED_S = 120.0
FILES_A_TRY = 3
LOG_DAMAGED, COMMANDS_LOST, AGENT_REFUSES = "log_damaged", "commands_lost", "agent_refuses"
TELEMETRY_SILENT = "telemetry_silent"


#: {file of an export or archive: its damage}; others are files of lines.
RECORDS = {"checkpoints": files.book, "manifest.json": files.garble_line}


class Prepared(NamedTuple):
    """A stopped stack with work behind it, and what its operator keeps of its log."""

    stack: Stack
    archive: Path
    export: Path
    public_key: Path


class Case(NamedTuple):
    """One kind of damage. `reported`: the condition that must be reported; "": no harm may be done."""

    what: str
    hurt: files.Hurt
    reported: str
    mend: "Callable[[Stack, Prepared], Stack | None]"
    live: bool = False


def accept_loss(stack: Stack, prepared: Prepared) -> Stack:
    """Type what `fairlead doctor` names for lost commands."""
    report = stack.doctor().get(COMMANDS_LOST, "")
    word = report.rpartition("--through ")[2].split("`")[0].split()[0] if "--through " in report else ""
    stack.fairlead("audit", "commands", "--accept-loss", *(["--through", word] if word else []))
    if not stack.pids():
        stack.up()
    return stack


def restore(stack: Stack, prepared: Prepared) -> Stack:
    """Make a new log from the archive, as the condition's second command does, and start there."""
    stack.end()
    new = Stack(stack.data.with_name(f"{stack.data.name}-new"))
    new.fairlead("audit", "restore", str(prepared.archive), "--data", str(new.data))
    new.up()
    return new


def move_journals(stack: Stack, prepared: Prepared) -> Stack:
    """Move the directories of the agents away, as their errors name it; the nodes join again."""
    stack.end()
    for name in ("agent-sim-1", "agent-sim-2"):
        (stack.data / name).rename(stack.data / f"{name}.away")
    stack.up()
    return stack


def move_days(stack: Stack, prepared: Prepared) -> Stack:
    """Move the list away, as telemetry's log names it."""
    path = stack.data / "telemetry" / "days" / "manifest.json"
    path.rename(path.with_name("manifest.json.away"))
    return stack


def nothing(stack: Stack, prepared: Prepared) -> None:
    """No person does anything."""


_flip, _cut = files.flip, files.cut
CASES = (
    Case("CMD: a bit flipped under a running stack, its server killed", files.block("CMD", _flip, index=False), COMMANDS_LOST, accept_loss, live=True),
    Case("LOG: a bit flipped, the index kept", files.block("LOG", _flip, index=True), LOG_DAMAGED, restore),
    Case("CMD: a bit flipped, the index gone", files.block("CMD", _flip, index=False), COMMANDS_LOST, accept_loss),
    Case("LOG: a bit flipped under a running stack, its server killed", files.block("LOG", _flip, index=False), LOG_DAMAGED, restore, live=True),
    Case("agents' journals: a bit flipped, the end gone, the file gone", files.journals, AGENT_REFUSES, move_journals),
    Case("LOG: a bit flipped, the index gone", files.block("LOG", _flip, index=False), LOG_DAMAGED, restore),
    Case("LOG: the block cut off, the index kept", files.block("LOG", _cut, index=True), LOG_DAMAGED, restore),
    Case("telemetry's database", files.warehouse, "", nothing),
    Case("CMD: the stream removed", files.remove_stream("CMD"), COMMANDS_LOST, accept_loss),
    Case("snapshots flipped, DESIRED removed", files.derived, "", nothing),
    Case("agents' lease, health and spawned, `stack.json`: garbage", files.notes_of_agents, "", nothing),
    Case("LOG: the block removed", files.remove_block("LOG"), LOG_DAMAGED, restore),
    Case("telemetry's database and its list of the files of days: garbage", files.days, TELEMETRY_SILENT, move_days),
    Case("CMD: the block cut off, the index gone", files.block("CMD", _cut, index=False), COMMANDS_LOST, accept_loss),
    Case("LOG: the stream removed", files.remove_stream("LOG"), LOG_DAMAGED, restore),
    Case("LOG: `meta.inf` flipped", files.stream_file("LOG", "meta.inf"), "", nothing),
)  # fmt: skip


def damage(directory: Path, tries: int, seed: int) -> list[Row]:
    """Damage `tries` copies of one stack's directory, case after case; then exports and archives, which need no stack."""
    prepared = prepare(directory)
    rows: list[Row] = []
    for number in range(tries):
        case, rng = CASES[number % len(CASES)], random.Random(f"{seed} {number}")
        stack = Stack(directory / f"case-{number}")
        try:
            rows.append(_try(case, stack, prepared, rng, directory))
        except AssertionError as error:
            rows.append(row("damage", case.what, 1, [str(error).splitlines()[0][:300]]))
        finally:
            stack.end()
            Stack(stack.data.with_name(f"{stack.data.name}-new")).end()
        print(rows[-1], flush=True)
    return [*joined(rows), *damaged_records(prepared, directory, tries * FILES_A_TRY, seed)]


def prepare(directory: Path) -> Prepared:
    """Run a stack under load, archive and export its log, and stop it."""
    stack = Stack(directory / "base")
    made = Prepared(stack, directory / "archive", directory / "export", directory / "archive.pub")
    try:
        stack.up()
        load = Load(stack, directory / "base-jobs")
        load.start()
        time.sleep(WORK_S)
        load.stop()
        lost = lost_or_open(stack, load, ENDED_S)
        assert not lost, f"before any damage: {lost[:3]}"
        secret = str(directory / "archive.key")
        made.public_key.write_text(stack.fairlead("audit", "key", secret, "--name", "fairlead.log/hostile").stdout)
        stack.down()
        stack.fairlead("audit", "archive", str(made.archive), "--key-file", secret)
        stack.fairlead("audit", "export", str(made.export))
    finally:
        stack.end()
    return made


class _Probe(NamedTuple):
    """A submit's key, its status, and the job or command that it was answered with."""

    key: str
    status: int
    job: str
    command: str
    problem: str


def _try(case: Case, stack: Stack, prepared: Prepared, rng: random.Random, directory: Path) -> Row:
    """Damage a copy, look for a report, probe with submits; then mend as documented, and probe again."""
    shutil.copytree(prepared.stack.data, stack.data, ignore=shutil.ignore_patterns("*.sock", "*.lock", "lock"))
    broken: list[str] = []
    began = time.monotonic()
    if case.live:
        stack.up()
        probes = [submit(stack, f"before-{number}") for number in range(3)]
        began = time.monotonic()
        _damage_under_way(case, stack, rng)
        seen: dict[str, str] = {}
        up_words = ""
    else:
        case.hurt(stack.data, rng)
        done = stack.up(check=False)
        up_words = (done.stdout + done.stderr).strip() if done.returncode else ""
        probes, seen = [], _named(stack)
    while not _is_enough(case, seen, up_words, probes) and time.monotonic() - began < REPORTED_S:
        if len(probes) < PROBES:
            probes.append(submit(stack, f"probe-{len(probes)}"))
        seen = _named(stack)
        time.sleep(0.5)
    after_s = time.monotonic() - began
    if case.reported == COMMANDS_LOST and COMMANDS_LOST not in seen:
        # A bit that the server's checksum leaves out may make one message unreadable that was decided long ago. Then
        # nothing is lost, which the acknowledged submits show below.
        case = case._replace(reported="")
    if case.reported and case.reported not in seen:
        broken.append(f"not reported within {REPORTED_S:g} s; seen: {', '.join(seen) or up_words[-200:] or 'nothing'}")
    elif case.reported and not seen[case.reported]:
        broken.append(f"{case.reported} names no command to type")
    if not case.reported and up_words:
        broken.append(f"`up` failed: {up_words[-200:]}")
    if case.reported in (COMMANDS_LOST, LOG_DAMAGED) and not up_words:
        probes += (refused := [submit(stack, f"after-{number}") for number in range(2)])
        broken += [f"answered {each.status} after the report" for each in refused if 200 <= each.status < 300]
    running = case.mend(stack, prepared) or stack
    running.wait_ready()
    if (
        running is stack
    ):  # a restored log ends where its archive ends; the archiver of a cluster follows within a second
        broken += _lost(running, probes)
    after = [submit(running, f"mended-{number}") for number in range(PROBES)]
    broken += [f"after the mend a submit was answered {each.status}" for each in after if each.status > 202]
    broken += _lost(running, after)
    broken += _unsound(running)
    running.down()
    how = f"{case.reported} after {after_s:.0f} s" if case.reported else "no harm"
    return row("damage", case.what, 1, broken, how)


def _is_enough(case: Case, seen: dict[str, str], up_words: str, probes: list[_Probe]) -> bool:
    if case.reported:
        return case.reported in seen
    return len(probes) == PROBES


def _damage_under_way(case: Case, stack: Stack, rng: random.Random) -> None:
    """Hold the supervisor, kill the server, damage its files, and let the supervisor start it again."""
    there = state.load(stack.data)
    assert there is not None
    os.kill(there.supervisor.pid, signal.SIGSTOP)
    try:
        pid = stack.pids()["nats"]
        send(pid, signal.SIGKILL)
        stack.until(lambda: "nats" not in stack.pids(), "the killed server has gone", 10)
        case.hurt(stack.data, rng)
    finally:
        os.kill(there.supervisor.pid, signal.SIGCONT)


def _named(stack: Stack) -> dict[str, str]:
    """{condition: the commands to type} that the gateway, `up` or the supervisor reports."""
    found: dict[str, str] = {each.code: each.hint() for each in state.load_conditions(stack.data)}
    _, document = stack.readyz()
    found |= {each["code"]: document["remedies"].get(each["code"], "") for each in document.get("conditions", [])}
    return found


def submit(stack: Stack, key: str) -> _Probe:
    """Submit one small job, once, and return any answer; status 0 without one."""
    job = {"command": ["true"], "resources": {"nvidia.com/gpu": 0, "cpu": "100m", "memory": "16Mi"}}
    try:
        answer = httpx.post(f"{stack.url}/v1/jobs", json=job, headers={"Idempotency-Key": key}, timeout=20)
        body: dict[str, Any] = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return _Probe(key, 0, "", "", "")
    return _Probe(key, answer.status_code, body.get("id") or "", body.get("command") or "", body.get("type", ""))


def _lost(stack: Stack, probes: list[_Probe]) -> list[str]:
    """Wait for the jobs of acknowledged submits; return those that never become one or do not end."""
    deadline, found = time.monotonic() + ENDED_S, []
    with stack.client() as client:
        for probe in probes:
            if probe.status not in (200, 201, 202):
                continue
            job = probe.job
            while not job and time.monotonic() < deadline:
                answer = httpx.get(f"{stack.url}/v1/commands/{probe.command}", timeout=10)
                job = answer.json().get("id") or "" if answer.status_code == 200 else ""
                time.sleep(0.3)
            if not job:
                found.append(f"{probe.key} was answered {probe.status} and never became a job")
                continue
            try:
                client.wait([job], timeout_s=max(1.0, deadline - time.monotonic()))
            except Exception as error:  # noqa: BLE001 -- whatever it is, the job was not seen to end
                found.append(f"job {job} of {probe.key} ({probe.status}): {str(error)[:100]}")
    return found


def _unsound(stack: Stack) -> list[str]:
    stack.wait_whole()
    checks = (("audit", "verify"), ("replay", "--check"))
    done = [(words, stack.fairlead(*words, check=False)) for words in checks]
    return [
        f"{' '.join(words)}: {(each.stdout + each.stderr).strip()[-200:]}" for words, each in done if each.returncode
    ]


def damaged_records(prepared: Prepared, directory: Path, tries: int, seed: int) -> list[Row]:
    """Damage copies of the exported log, and of the archive; `audit verify` must find each."""
    rng, missed, ways = random.Random(seed), {"export": list[str](), "archive": list[str]()}, set[str]()
    for number in range(tries):
        what = ("export", "archive")[number % 2]
        copy = directory / f"{what}-{number}"
        shutil.copytree(prepared.export if what == "export" else prepared.archive, copy)
        names = (
            ("log.jsonl", "log.jsonl", "manifest.json")
            if what == "export"
            else ("tail.jsonl", "tail.jsonl", "checkpoints")
        )
        name = rng.choice(names)
        way = RECORDS.get(name, files.lines)(copy / name, rng)
        ways.add(way)
        words = ["--data", str(copy)]
        if what == "archive":
            words = ["--data", str(prepared.export), "--archive", str(copy), "--key", str(prepared.public_key)]
        done = prepared.stack.fairlead("audit", "verify", *words, check=False)
        if not done.returncode:
            missed[what].append(f"{name}: {way}, try {number}, seed {seed}: found nothing")
        elif "Traceback" in done.stderr:
            missed[what].append(f"{name}: {way}, try {number}, seed {seed}: a traceback")
        shutil.rmtree(copy)
    counts = {"export": (tries + 1) // 2, "archive": tries // 2}
    return [
        row("damage", f"{what}: {', '.join(sorted(ways))}", counts[what], missed[what])
        for what in missed
        if counts[what]
    ]
