"""`audit verify`, `audit export` and `replay`: is the log whole, and what did the cluster look like then?

The checking itself is `fairlead_replay`'s; here is only where the log is found: an exported directory, a running
stack, or the data of a stopped one (its bus is started alone for the reading, and stopped again).

`audit commands`: are all commands still there that people were promised a decision about? And what if not.

The work is `fairlead_bus.command_loss`'s.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.commands import access, usage
from fairlead.commands import archive as archiving
from fairlead.commands.archive import verify_with
from fairlead.commands.audit_options import Data, Nats, app, bus_url, is_export, translated
from fairlead.commands.load_files import export_load, refuse_without_load
from fairlead.commands.options import Output, time_of
from fairlead.errors import FairleadError, InputRefused
from fairlead.render import terminal
from fairlead.render.progress import progress
from fairlead.render.terminal import Format
from fairlead.stack import state
from fairlead_schemas.units.quantities import counted
from fairlead_schemas.units.timestamps import parse_rfc3339, rfc3339_seconds
from fairlead_schemas.wire.conditions import Condition
from fairlead_schemas.wire.lifecycle import STATES

if TYPE_CHECKING:  # the cores are loaded by the verbs that fold, not by every command line
    from fairlead_bus.command_loss import AcceptedLoss, CommandStreamReport
    from fairlead_replay.fold import FoldedCluster, FoldEnd
    from fairlead_replay.live_comparison import Comparison
    from fairlead_replay.rights_audit import CommandCount


@app.command()
def verify(
    data: Data = None,
    nats: Nats = "",
    archive: Annotated[
        Path | None, typer.Option("--archive", help="Hold the log against this archive, too.", show_default=False)
    ] = None,
    key: Annotated[
        str,
        typer.Option(
            "--key",
            help="The archive's public key, or a file with it.",
            envvar="FAIRLEAD_ARCHIVE_KEY",
            show_default=False,
        ),
    ] = "",
    known: Annotated[
        list[Path] | None,
        typer.Option("--known", help="A book of checkpoints from elsewhere; may be repeated.", show_default=False),
    ] = None,
    remember: Annotated[
        Path | None,
        typer.Option(
            "--remember", help="Your own book: checked as --known, and the newest is added.", show_default=False
        ),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Check every commit: contiguous, chained, valid, every job's moves legal, every command within its
    caller's rights. Exit code 1 names the first bad sequence.

    fairlead audit verify

    fairlead audit verify --data ./export

    fairlead audit verify --archive ./archive --key fairlead.log+… --remember ~/checkpoints
    """
    from fairlead_replay.audit import verify_export, verify_url

    folder = (data or state.default_data()).absolute()
    report = None
    if archive is not None:
        verify_with(archive, folder, nats, key, known or [], remember, output)
        return
    if not nats and is_export(folder):
        with progress("audit verify", "commits", output) as seen:
            verdict = verify_export(folder, seen)
    else:
        with bus_url(folder, nats) as url, translated():
            with progress("audit verify", "commits", output) as seen:
                verdict = verify_url(url, seen)
            report = inspect_url(url) if verdict.ok else None
    extra = {"commands": report_document(report)} if report is not None else {}
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(verdict._asdict() | {"rights": verdict.rights._asdict()} | extra, output))
    elif verdict.ok:
        terminal.write(
            f"ok: {counted(verdict.commits, 'commit')}, {counted(verdict.events, 'event')}, every hash and every move checked\n"
        )
        terminal.write(rights_lines(verdict.rights))
    else:
        where = f"sequence {verdict.first_bad}: " if verdict.first_bad else ""
        terminal.write(f"DAMAGED: {where}{verdict.what} ({counted(verdict.commits, 'commit')} read)\n")
    if report is not None and report.is_lost and output not in (Format.json, Format.yaml):
        terminal.write(f"{report_line(report)}hint: fairlead audit commands\n")
    if not verdict.ok or (report is not None and report.is_lost):
        raise typer.Exit(1)


def rights_lines(rights: "CommandCount") -> str:
    """Return what the log proves of its commands' rights; "" for a log in which no command carries any."""
    if not rights.judged and not rights.refused and not rights.unsigned:
        return ""
    lines = f"rights: {rights.judged} accepted commands were within their callers' rights"
    if rights.unplaced:
        lines += f" ({rights.unplaced} grants about things of which the log does not say where they are)"
    lines += f"; {rights.without_authority} carried no authority\n"
    if rights.unsigned:
        lines += f"note: {rights.unsigned} of those name a person, after tokens of people were first issued\n"
    return lines


@app.command()
def export(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="DIRECTORY|FILE", help="Where to write: a directory, or with --load a new file.", show_default=False
        ),
    ],
    load: Annotated[
        bool,
        typer.Option(
            "--load", help="Write a load file, for `policy test` and `whatif`; its name ends in .load.jsonl.gz."
        ),
    ] = False,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="With --load: replace all names, and leave out free text and job files.")
    ] = False,
    names: Annotated[
        Path | None,
        typer.Option(
            "--names", help="With --anonymous: write which name became which, for yourself (CSV).", show_default=False
        ),
    ] = None,
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="With --load: begin.  [default: the log's start]", show_default=False
        ),
    ] = "",
    to: Annotated[
        str,
        typer.Option("--to", metavar="TIME", help="With --load: end.  [default: the log's end]", show_default=False),
    ] = "",
    data: Data = None,
    nats: Nats = "",
    output: Output = Format.table,
) -> None:
    """Write the log to files that anybody can keep and check without a server; or (--load) what was asked of the
    cluster, in one file that can be played again.

    fairlead audit export ./export

    fairlead audit export --load --anonymous day.load.jsonl.gz --from yesterday --to 2h
    """
    from fairlead_replay.audit import export_url

    folder = (data or state.default_data()).absolute()
    if load:
        export_load(target, folder, nats, from_, to, anonymous=anonymous, names=names, output=output)
        return
    refuse_without_load({"--anonymous": anonymous, "--names": names, "--from": from_, "--to": to})
    with bus_url(folder, nats) as url, translated(), progress("audit export", "commits", output) as seen:
        manifest = export_url(url, target, seen)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(manifest, output))
    else:
        terminal.write(f"{target}: {counted(manifest.commits, 'commit')} up to sequence {manifest.last}\n")


def replay(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="SEQ|TIME",
            help='Fold up to this sequence, or this time: "2h" ago, "03:00" (default: all).',
            show_default=False,
        ),
    ] = "",
    data: Data = None,
    nats: Nats = "",
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Also compare with the live services, byte for byte; exit code 1 if one differs. A state of another version is reported and not compared.",
        ),
    ] = False,
    keyframes: Annotated[
        Path | None,
        typer.Option(
            "--keyframes",
            metavar="DIR",
            help="Instead of all that, store states of the past there, as the process for the past does (FAIRLEAD_PAST_DIR).",
            show_default=False,
        ),
    ] = None,
    show: Annotated[
        str, typer.Option("--show", help="Print the folded state of this service (queue, placer, telemetry or access).")
    ] = "",
    output: Output = Format.table,
) -> None:
    """Fold the log to a sequence or a time with the services' own code and print what it amounts to.

    fairlead replay --to 40213

    fairlead replay --to 03:00     (up to the last commit before the first one that is later)

    fairlead replay --check

    fairlead replay --keyframes /var/lib/fairlead-past/past
    """
    if keyframes is not None:
        if to or check or show:
            raise InputRefused("expected --keyframes alone, found it with --to, --check or --show")
        terminal.write(_keyframes((data or state.default_data()).absolute(), nats, keyframes))
        return
    cluster, compared = _folded((data or state.default_data()).absolute(), nats, _end(to), compare=check, output=output)
    if show:
        cores = cluster.cores()
        if show not in cores:
            raise InputRefused(f'--show: expected one of {", ".join(cores)}, found "{show}"')
        terminal.write(cores[show].snapshot().decode() + "\n")
        return
    if output in (Format.json, Format.yaml):
        found = {"compared": [{**one._asdict(), "equal": one.equal} for one in compared]} if check else {}
        document = {
            "sequence": cluster.sequence,
            "at_ns": cluster.at_ns,
            "state_sha256": cluster.state_hashes(),
            **found,
        }
        terminal.write(terminal.document(document, output))
    else:
        terminal.write("".join(_lines(cluster, compared)))
    if any(not (one.equal or one.of_another_version) for one in compared):
        raise typer.Exit(1)


def _keyframes(folder: Path, nats: str, directory: Path) -> str:
    """Store the keyframes of the log of a running cluster or of an export. Return a line about them."""
    from fairlead_bus.main import with_bus
    from fairlead_replay.export import read_export
    from fairlead_replay.past.keyframe_writer import build, build_live

    with translated():
        if not nats and is_export(folder):
            store = build(read_export(folder), directory)
        else:
            with bus_url(folder, nats) as url:
                store = with_bus(url, "replay", lambda bus: build_live(bus, directory))
    places = store.places if store is not None else []
    newest = f", the newest at sequence {places[-1].sequence}" if places else ""
    kept = sum(place.bytes for place in places)
    return f"{directory}: {len(places)} keyframes of {kept / 2**20:.1f} MiB{newest}\n"


def _end(text: str) -> "FoldEnd":
    """Return where a fold ends. Raises InputRefused."""
    from fairlead_replay.fold import FoldEnd

    if text.isascii() and text.isdecimal():
        return FoldEnd(sequence=int(text))
    return FoldEnd(at_ns=parse_rfc3339(time_of(text))) if text else FoldEnd()


def _folded(
    folder: Path, nats: str, to: "FoldEnd", *, compare: bool, output: Format
) -> "tuple[FoldedCluster, list[Comparison]]":
    """The log of a running cluster or of an export, folded; what the live services answered, where they were asked."""
    from fairlead_bus.main import with_bus
    from fairlead_replay.live_comparison import compare_live, fold_export, fold_live

    with translated():
        if not nats and is_export(folder):
            if compare:
                raise InputRefused("--check needs live services; an exported log has none")
            with progress("replay", "commits", output) as seen:
                return fold_export(folder, to, seen), []
        with bus_url(folder, nats) as url:
            with progress("replay", "commits", output) as seen:
                cluster = with_bus(url, "replay", lambda bus: fold_live(bus, to, seen))
            return cluster, with_bus(url, "replay", compare_live) if compare else []


def _lines(cluster: "FoldedCluster", compared: "Sequence[Comparison]") -> Iterator[str]:
    hashes = [(f"{service} state", digest) for service, digest in cluster.state_hashes().items()]
    yield terminal.fields([("sequence", str(cluster.sequence)), *summary(cluster), *hashes])
    for one in compared:
        yield f"{one.what}: {one.verdict} at {one.sequence} {one.message}".rstrip() + "\n"


def summary(cluster: "FoldedCluster") -> list[tuple[str, str]]:
    """Return a summary of a folded cluster as (label, text) pairs: its time, its jobs, its nodes, its queues."""
    if not cluster.at_ns:
        return []
    queue, nodes = cluster.queue.state, cluster.placer.state.nodes.values()
    jobs = Counter([*(job.state for job in queue.jobs.values()), *queue.finished.values()])
    gpus = sum(len(node.inventory.gpus) for node in nodes)
    return [
        ("at", rfc3339_seconds(cluster.at_ns)),
        ("jobs", ", ".join(f"{jobs[state]} {state}" for state in STATES if jobs[state]) or "none"),
        ("nodes", f"{len(nodes)} with {gpus} GPUs"),
        ("queues", ", ".join(sorted(queue.queues))),
        ("more", f"fairlead why ID --at {cluster.sequence}"),
    ]


@app.command()
def commands(
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Continue without the lost commands; those still present are kept."),
    ] = False,
    through: Annotated[
        int,
        typer.Option(
            "--through", min=0, help="With --accept-loss: also skip up to this sequence, as the gateway named it."
        ),
    ] = 0,
    data: Data = None,
    nats: Nats = "",
    output: Output = Format.table,
) -> None:
    """Compare the stream of commands with the log. Exit code 1 means that commands are gone; their sequences are printed.

    fairlead audit commands

    fairlead audit commands --accept-loss

    Works on a running cluster, which recovers automatically within seconds, and on the data of a stopped one.
    """
    from fairlead_bus import command_loss
    from fairlead_bus.main import with_bus

    folder = (data or state.default_data()).absolute()
    if through and not accept_loss:
        raise typer.BadParameter("expected --accept-loss with it", param_hint="--through")
    with bus_url(folder, nats) as url, translated():
        if accept_loss:
            accepted = with_bus(url, "audit", lambda bus: command_loss.accept_loss(bus, through=through))
            if not nats:
                state.forget_condition(folder, "commands_lost")
            _write_accepted(accepted, output)
            return
        report = inspect_url(url)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(report_document(report), output))
    else:
        terminal.write(report_line(report))
    if report.is_lost:
        where = "" if folder == state.default_data() else str(folder)
        hint = Condition(code="commands_lost", message="").hint(where)
        raise FairleadError("commands are lost, none are taken until a person has accepted it", hint=hint)


def inspect_url(url: str) -> "CommandStreamReport":
    """Hold all of CMD against the log, for callers without an event loop. Raises BusError."""
    from fairlead_bus.command_loss import inspect
    from fairlead_bus.main import with_bus

    return with_bus(url, "audit", lambda bus: inspect(bus, deep=True))


def report_document(report: "CommandStreamReport") -> dict[str, object]:
    """The report for programs."""
    return {
        "ok": not report.is_lost,
        "first": report.first,
        "last": report.last,
        "read": report.read,
        "lost": [gap._asdict() | {"unread_by": report.unread_by(gap)} for gap in report.gaps],
        "messages_lost": report.messages_lost,
        "message": report.message(),
    }


def report_line(report: "CommandStreamReport") -> str:
    """The report for people."""
    if report.is_lost:
        return f"DAMAGED: {report.message()}\n"
    read = ", ".join(f"{service} {sequence}" for service, sequence in report.read.items())
    return f"ok: the stream of commands ends at sequence {report.last}; read up to: {read}\n"


def _write_accepted(accepted: "AcceptedLoss", output: Format) -> None:
    if output in (Format.json, Format.yaml):
        document = {
            "changed": accepted.changed,
            "through": accepted.through,
            "kept": accepted.kept,
            "lost": report_document(accepted.report)["lost"],
        }
        terminal.write(terminal.document(document, output))
    elif not accepted.changed:
        terminal.write("nothing is lost, nothing was changed\n")
    else:
        terminal.write(
            f"accepted: {accepted.report.messages_lost} messages are gone; commands continue after sequence "
            f"{accepted.through}; {accepted.kept} unread messages were kept\n"
        )


for _verb in (archiving.key, archiving.archive, archiving.restore, archiving.prove, archiving.check):
    app.command()(_verb)
app.command("usage")(usage.audit_usage)
app.command("access")(access.audit_access)
