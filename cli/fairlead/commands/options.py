"""Options that many verbs share, the connection to the gateway, and completion by TAB. Also job ids as people write
them: `812`, `812_3`, `812[0-3]`, `1-3`, `7,9,12-14`, `last`, `all`.

Pure: the meanings of `last` and `all` are passed in. Start at `expand`.
"""

import os
import re
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.client import Client
from fairlead.errors import FairleadError, InputRefused, NotFound
from fairlead.render import clock, terminal
from fairlead.render.terminal import Format
from fairlead_schemas.units import hostlists, quantities
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.moments import local_moment
from fairlead_schemas.units.timestamps import parse_moment, parse_rfc3339, rfc3339
from fairlead_schemas.wire.lifecycle import END_STATES, STATES

if TYPE_CHECKING:
    import httpx

#: One command names at most this many jobs; `all` may stand for more.
RANGE_MAX = 10_000
#: One command names at most this many nodes.
NODES_MAX = 10_000

_RANGE = re.compile(r"([1-9]\d{0,17})-([1-9]\d{0,17})\Z")
_ELEMENTS = re.compile(r"([1-9]\d{0,17})(?:_|)\[([\d,\-]+)\]\Z")
_EXPECTED = 'expected a job such as "812", "812_3", "812[0-3]", "1-3", "7,9", "last" or "all"'


def expand_ids(
    words: Iterable[str],
    *,
    last: Callable[[], str | None],
    everything: Callable[[], list[str]],
    named: Callable[[str], str] | None = None,
) -> list[str]:
    """Job ids in the order named, each once.

    `last()` gives the caller's newest job (None: there is none), `everything()` all that `all` means for the verb, `named` the job of a
    name (None: the verb takes no names). Raises Refused for a word that names nothing, NotFound when `last` has no job.
    """
    found: dict[str, None] = {}
    for word in words:
        for part in _split(word):
            try:
                ids = _expand_one(part, last, everything)
            except InputRefused:
                if named is None:
                    raise
                ids = [named(part)]
            found.update(dict.fromkeys(ids))
    return list(found)


def _split(word: str) -> list[str]:
    """Split at commas outside brackets: `7,8[1,2]` is two parts."""
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", word)]
    found = [part for part in parts if part]
    if not found:  # usually an empty variable of a script, which would continue as if this had worked
        raise InputRefused(f'{_EXPECTED}, found "{word}"')
    return found


def _expand_one(part: str, last: Callable[[], str | None], everything: Callable[[], list[str]]) -> list[str]:
    if part == "last":
        newest = last()
        if newest is None:
            raise NotFound("you have no job yet", hint="fairlead submit -- echo hello")
        return [newest]
    if part == "all":
        return everything()
    if is_job_id(part):
        return [part]
    if match := _RANGE.match(part):
        return [str(n) for n in _numbers(part, int(match[1]), int(match[2]))]
    if match := _ELEMENTS.match(part):
        return [f"{match[1]}_{index}" for piece in match[2].split(",") for index in _indexes(part, piece)]
    raise InputRefused(f'{_EXPECTED}, found "{part}"')


def _indexes(part: str, piece: str) -> list[int]:
    first, dash, final = piece.partition("-")
    if not first.isdecimal() or (dash and not final.isdecimal()):
        raise InputRefused(f'{_EXPECTED}, found "{part}"')
    return _numbers(part, int(first), int(final if dash else first))


def _numbers(part: str, first: int, final: int) -> list[int]:
    if not 0 <= final - first < RANGE_MAX:
        raise InputRefused(f'expected a rising range of at most {RANGE_MAX} jobs, found "{part}"')
    return list(range(first, final + 1))


#: Every state of a job that has not ended, as the API takes them.
OPEN_STATES = ",".join(state for state in STATES if state not in END_STATES)
#: Jobs offered for completion, newest first.
COMPLETIONS_MAX = 50

type JobIds = list[str]


class MomentClient(Client):
    """Client of a command line: it says on stderr which moment its answers were about."""

    def close(self) -> None:
        """Close the connections."""
        super().close()
        if self.as_of:
            sequence, _, time_then = self.as_of.partition(" ")
            terminal.note(f"as of sequence {sequence}, {time_then}")
            clock.stand_at(parse_rfc3339(time_then))
            self.as_of = ""


def connect() -> Client:
    """Return a client for the cluster that the environment, a context or the local stack names, about the moment of FAIRLEAD_AT. Close it
    (or use `with`). Raises as `fairlead.client.settings.settings_of`, and InputRefused for a moment that cannot be.
    """
    clock.stand_at(0)
    at = moment_of(os.environ.get("FAIRLEAD_AT", ""))
    if kept := os.environ.get("FAIRLEAD_LOG_DIR", ""):
        return MomentClient("http://localhost", at=at, transport=_kept_log(Path(kept)))
    return MomentClient(at=at)


def _kept_log(directory: Path) -> "httpx.BaseTransport":
    """Return what answers requests about a kept log. Raises NotFound, and FairleadError for one that is damaged."""
    from fairlead.commands.audit_options import translated
    from fairlead_replay.past.kept_log import StandingTransport
    from fairlead_replay.whatif.sources import is_directory_log, stored_in

    if not is_directory_log(directory):
        raise NotFound(
            f"there is no kept log in {directory}",
            hint="--log names a directory of `fairlead audit export`, an archive, or one of `fairlead whatif --keep`",
        )
    with translated():
        return StandingTransport(stored_in(directory))


def moment_of(text: str, option: str = "--at") -> str:
    """Return a moment of the command line as the gateway reads it. `option`: the one that names it. Raises InputRefused."""
    if not text:
        return ""
    try:
        return local_moment(text, time.time_ns())
    except ValueError as error:
        raise InputRefused(f"{option}: {error}", hint="docs/how-to/past.md has examples") from None


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Job ids for TAB, with their names; nothing when the cluster cannot be asked."""
    try:
        with connect() as client:
            jobs = client.jobs(limit=COMPLETIONS_MAX).items
    except FairleadError:
        return []
    words = [(job.id, f"{job.name} {job.state}") for job in jobs]
    return [
        word
        for word in [*words, ("last", "your newest job"), ("all", "all your open jobs")]
        if word[0].startswith(incomplete)
    ]


def complete_node(incomplete: str) -> list[str]:
    """Node ids for TAB."""
    try:
        with connect() as client:
            return [node.id for node in client.nodes().items if node.id.startswith(incomplete)]
    except FairleadError:
        return []


def complete_queue(incomplete: str) -> list[str]:
    """Queue paths for TAB."""
    try:
        with connect() as client:
            return [queue.path for queue in client.queues().items if queue.path.startswith(incomplete)]
    except FairleadError:
        return []


def pick(client: Client, words: list[str], *, names: bool = False) -> list[str]:
    """Return the job ids for words from the command line. `last` is the user's newest job, `all` all their jobs that have not
    ended. With `names`, another word is the name of a job: the user's newest of that name, else the newest.
    """

    def mine() -> list[str]:
        jobs = [job for job in client.jobs(user=client.me()).items if job.state not in END_STATES and "_" not in job.id]
        return sorted((job.id for job in jobs), key=int)

    def newest() -> str | None:
        # Elements of older arrays may stand before the newest job; the number of the job decides.
        ids = [int(job.id.partition("_")[0]) for job in client.jobs(user=client.me(), limit=COMPLETIONS_MAX).items]
        return str(max(ids)) if ids else None

    def named(name: str) -> str:
        for user in (client.me(), ""):
            found = client.jobs(user=user, name=name, elements=False, limit=1).items
            if found:
                return found[0].id
        raise NotFound(f'no job has the id or the name "{name}"', hint="fairlead jobs --all")

    return expand_ids(words, last=newest, everything=mine, named=named if names else None)


def carry_out(
    client: Client,
    names: Iterable[str],
    verb: Callable[[Client, str], dict[str, Any]],
    *,
    kind: str,
    done: str | Callable[[dict[str, Any]], str],
    output: Format,
) -> dict[str, FairleadError]:
    """Send one request for each name, even after a refusal, and print each answer. Return the refusals by name.

    `done`: words for the people's line of every name, or a function that returns them for an answer.
    """
    answers: list[dict[str, Any]] = []
    refusals: dict[str, FairleadError] = {}
    for name in names:
        try:
            answer = verb(client, name)
        except FairleadError as error:
            refusals[name] = error
            continue
        answers.append(answer)
        if output is Format.names:
            terminal.write(f"{kind}/{name}\n")
        elif output in (Format.table, Format.wide):
            terminal.write(f"{name} {done if isinstance(done, str) else done(answer)}\n")
    if output in (Format.json, Format.yaml) and answers:
        terminal.write(terminal.document(answers[0] if len(answers) == 1 else answers, output))
    return refusals


class ListFormat(StrEnum):
    """Output formats of a list that also goes into tables of others."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    names = "name"
    csv = "csv"


def time_of(text: str) -> str:
    """Return a time of the command line as RFC 3339: how long ago ("2h"), or in the machine's zone as `parse_moment` reads it. Raises
    InputRefused.
    """
    now_ns = time.time_ns()
    try:  # first: as a duration, "03:00" would be three hours
        return rfc3339(parse_moment(text, now_ns))
    except (ValueError, OverflowError):
        pass
    try:
        return rfc3339(now_ns - quantities.parse_duration(text))
    except (quantities.QuantityError, ValueError, OverflowError):
        raise InputRefused(
            f'expected a time such as "2h" (ago), "03:00", "yesterday", "2026-01-31 03:00" or RFC 3339, found "{text}"'
        ) from None


def labels_of(words: Iterable[str] | None) -> dict[str, str]:
    """Return the labels of `--selector` words. Raises InputRefused."""
    found: dict[str, str] = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InputRefused(f'--selector: expected key=value, found "{word}"')
        found[key] = value
    return found


def expand_nodes(words: Iterable[str]) -> list[str]:
    """Return node names in the order named, each once: `n1`, `n1,n2` and `n-[1-4]` as Slurm writes them. Raises InputRefused."""
    found: dict[str, None] = {}
    for word in words:
        try:
            names = hostlists.expand(word)
        except ValueError as error:
            raise InputRefused(str(error)) from None
        if not all(names) or len(names) > NODES_MAX:
            raise InputRefused(
                f'expected 1 to {NODES_MAX} nodes such as "sim-1", "sim-1,sim-2" or "sim-[1-4]", found "{word}"'
            )
        found.update(dict.fromkeys(names))
    return list(found)


ListOutput = Annotated[
    ListFormat,
    typer.Option("--output", "-o", help="table, wide, json, yaml, name or csv; JSON is the API's own shape."),
]
Output = Annotated[
    Format, typer.Option("--output", "-o", help="table, wide, json, yaml or name; JSON is the API's own shape.")
]
IfMatch = Annotated[
    int | None,
    typer.Option(
        "--if-match",
        metavar="SEQUENCE",
        min=0,
        help="Change nothing if it has changed after this log sequence.",
        show_default=False,
    ),
]
Ids = Annotated[
    list[str],
    typer.Argument(
        metavar="ID…", help="812, 812_3, 812[0-3], 1-3, last or all.", autocompletion=complete_job, show_default=False
    ),
]
Id = Annotated[
    str, typer.Argument(metavar="ID", help="812, 812_3 or last.", autocompletion=complete_job, show_default=False)
]
NodeName = Annotated[str, typer.Argument(metavar="NODE", autocompletion=complete_node, show_default=False)]
NodeNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NODE…", help="sim-1, sim-1,sim-2 or sim-[1-4].", autocompletion=complete_node, show_default=False
    ),
]
Selector = Annotated[
    list[str] | None,
    typer.Option(
        "--selector", "-l", help="key=value: nodes with this label; repeatable: with all.", show_default=False
    ),
]
NodesDryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say which nodes it would be, with their state and jobs, and send nothing.")
]
NamedIds = Annotated[
    list[str],
    typer.Argument(
        metavar="ID|NAME…",
        help="812, 812_3, 812[0-3], 1-3, last, all, or the name of a job: the newest of yours, else of all.",
        autocompletion=complete_job,
        show_default=False,
    ),
]
NamedId = Annotated[
    str,
    typer.Argument(
        metavar="ID|NAME",
        help="812, 812_3, last, or the name of a job: the newest of yours, else of all.",
        autocompletion=complete_job,
        show_default=False,
    ),
]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", help='Give up waiting after this long ("90s", "1h 30m"); exit code 124.', show_default=False
    ),
]
