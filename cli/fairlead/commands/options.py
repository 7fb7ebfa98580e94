"""Options that many verbs share, the connection that they use, and what `last`, `all` and TAB stand for.

The gateway is the one of --url or FAIRLEAD_URL, else the local stack of this data directory, else (where FAIRLEAD_DATA names none) port 8080 here.
"""

import os
from typing import Annotated

import typer

from fairlead import job_ids
from fairlead.client import Client
from fairlead.errors import FairleadError, Unreachable
from fairlead.render import Format
from fairlead.stack import state
from fairlead_schemas.wire.lifecycle import END_STATES, STATES

#: Every state of a job that has not ended, as the API takes them.
OPEN_STATES = ",".join(state for state in STATES if state not in END_STATES)
#: Jobs offered for completion, newest first.
COMPLETIONS_MAX = 50

type JobIds = list[str]


def connect() -> Client:
    """Return a client for the cluster that the environment or the local stack names. Close it (or use `with`).

    Raises Unreachable where FAIRLEAD_DATA names a stack that does not run: whatever answers at the default port then is
    another cluster, and must not get what was meant for this one.
    """
    url = os.environ.get("FAIRLEAD_URL", "")
    if not url:
        data = state.default_data()
        there = state.load(data)
        url = there.url if there is not None and state.lives(there.supervisor) else ""
        if not url and os.environ.get("FAIRLEAD_DATA"):
            raise Unreachable(
                f"the stack of {data} does not run",
                hint="start it with `fairlead up`, unset FAIRLEAD_DATA, or name a gateway in FAIRLEAD_URL",
            )
    return Client(url)


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


def pick(client: Client, words: list[str]) -> list[str]:
    """Return the job ids for words from the command line. `last` is the user's newest job, `all` all their jobs that have not
    ended.
    """

    def mine() -> list[str]:
        jobs = [job for job in client.jobs(user=client.user).items if job.state not in END_STATES and "_" not in job.id]
        return sorted((job.id for job in jobs), key=int)

    def newest() -> str | None:
        # Elements of older arrays may stand before the newest job; the number of the job decides.
        ids = [int(job.id.partition("_")[0]) for job in client.jobs(user=client.user, limit=COMPLETIONS_MAX).items]
        return str(max(ids)) if ids else None

    return job_ids.expand(words, last=newest, everything=mine)


Output = Annotated[
    Format, typer.Option("--output", "-o", help="table, wide, json, yaml or name; JSON is the API's own shape.")
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
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", help='Give up waiting after this long ("90s", "1h 30m"); exit code 124.', show_default=False
    ),
]
