"""`demo`: the stack, the story, the table, the verdict."""

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fairlead import demo_past, demo_people, demo_session
from fairlead.commands.options import OPEN_STATES, Output
from fairlead.commands.stack import say
from fairlead.demo_session import NODES, PartResult, play, size
from fairlead.errors import FairleadError
from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead.stack.local import Stack, StackOptions

END_S = 15.0


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data directory and print its path.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Leave it up afterwards, with its pages, until Ctrl-C.")] = False,
    output: Output = Format.table,
) -> None:
    """Watch a small team's morning on four simulated 8-GPU nodes; ends by itself.

    Exit code 0: everything came out as it must, and the log verifies; 1: something did not, and which.

    fairlead demo

    fairlead demo --stay     (then look at it in a browser)
    """
    # Services are sessions of their own, so a signal that ends the demo must still stop them on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    with _data(keep) as data:
        stack = Stack(
            StackOptions(data, nodes=NODES, port=0), say if output is Format.table else lambda what, text: None
        )
        wrong = _run(stack, output, stay=stay)
        if stack.crashed():
            wrong.append(f"had to be started again: {', '.join(stack.crashed())}")
    if output is Format.table:
        _verdict(wrong, time.monotonic() - began, data if keep else None)
    if wrong:
        raise typer.Exit(1)


@contextlib.contextmanager
def _data(keep: bool) -> Iterator[Path]:
    """A data directory of its own, gone afterwards unless kept."""
    folder = Path(tempfile.mkdtemp(prefix="fairlead-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _run(stack: Stack, output: Format, *, stay: bool = False) -> list[str]:
    """Start, play, check, stop. What is wrong, one line each. `stay`: stop once a person interrupts."""
    from fairlead_replay.audit import verify_url

    say_it = say if output is Format.table else lambda what, text: None
    try:
        stack.up()
        with stack.client("demo") as client:
            results, wrong, gang_output = play(client, say_it)
            wrong += demo_people.play(client, say_it)
            wrong += demo_past.play(client, results, say_it)
            wrong += demo_past.play_estimate(client, say_it)
        wrong += demo_past.play_policy_test(stack.nats_url, stack.options.data, say_it)
        verdict = verify_url(stack.nats_url)
        if not verdict.ok:
            wrong.append(f"audit verify: sequence {verdict.first_bad}: {verdict.what}")
        checked = f"{verdict.commits} commits, {verdict.events} events, every hash and every move checked"
        _print(results, gang_output, output, checked if verdict.ok else "")
        if stay:
            _stay(stack)
    except FairleadError as error:
        return [str(error)]
    finally:
        _end_jobs(stack)
        stack.down()
    return wrong


def _stay(stack: Stack) -> None:
    """Say where the pages are, and wait for Ctrl-C (or SIGTERM, which raises the same)."""
    with stack.client("demo") as client:
        link = client.sign_in_link() if stack.token else ""
    terminal.note(f"look at it: {stack.url}{link or '/map'}   (once; {stack.url}/gantt shows the morning)")
    terminal.note("it stays up until Ctrl-C, and is gone then")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


def _end_jobs(stack: Stack) -> None:
    """A demo that was broken off must not leave its jobs' processes behind, which a stack's end spares."""
    with contextlib.suppress(FairleadError), stack.client("demo") as client:
        open_jobs = [job.id for job in client.jobs(state=OPEN_STATES).items] if client.ready() else []
        for job_id in open_jobs:
            with contextlib.suppress(FairleadError):
                client.cancel(job_id)
        client.wait(open_jobs, timeout_s=END_S)


def _print(results: dict[str, PartResult], gang_output: str, output: Format, audit: str) -> None:
    if output is not Format.table:
        terminal.write(terminal.document([_document(one) for one in results.values()], output))
        return
    columns = [
        TableColumn(head, lambda row: row) for head in ("JOB", "NAME", "SIZE", "QUEUE", "OUTCOME", "WHERE", "WHAT")
    ]
    rows = [
        [
            one.job.id if one.job else "-",
            one.part.spec["name"],
            size(one.part.spec),
            one.part.spec["queue"],
            demo_session.outcome(one),
            ",".join(one.job.nodes) if one.job else "",
            one.part.summary,
        ]
        for one in results.values()
    ]
    terminal.write("\n" + terminal.table(rows, columns) + "\n")
    for one in results.values():
        if one.waited[1] and one.job:
            terminal.write(f"why       job {one.job.id} {one.part.spec['name']} waited: {one.waited[1]}\n")
        if one.why and one.job:
            terminal.write(f"why       job {one.job.id} {one.part.spec['name']}: {one.why}\n")
        if one.refusal[1]:
            terminal.write(f"why       {one.part.spec['name']} was refused: {one.refusal[1]}\n")
    for line in gang_output.splitlines()[:4]:
        terminal.write(f"output    {line}\n")
    if audit:
        terminal.write(f"audit     {audit}\n")


def _document(one: PartResult) -> dict[str, object]:
    return {
        "key": one.part.key,
        "outcome": demo_session.outcome(one),
        "job": one.job,
        "waited": one.waited[1],
        "why": one.why,
        "refused": one.refusal[1],
    }


def _verdict(wrong: list[str], seconds: float, kept: Path | None) -> None:
    if wrong:
        terminal.note(f"error: the demo did not come out as it must: {wrong[0]}")
        for line in wrong[1:]:
            terminal.note(f"       {line}")
        terminal.note("hint: fairlead doctor; fairlead demo --keep keeps the logs")
    else:
        say("result", f"as expected, {seconds:.0f} s; GPUs were simulated, processes were real")
    if kept is not None:
        say("data", f"{kept} (logs in logs/; fairlead audit verify --data {kept})")
    if not wrong:
        say(
            "try next",
            'fairlead up | fairlead submit --gpus 2 -- env | fairlead why last | fairlead top | fairlead sql "FROM events LIMIT 5"',
        )
