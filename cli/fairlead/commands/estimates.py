"""`estimates`: how right the estimates of starts were, by queue, and the worst of them."""

from collections.abc import Iterator

from fairlead.commands.options import Output, connect
from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead_schemas.http.api import EstimateGiven, Estimates, QueueEstimates

_HEAD = ("QUEUE", "ESTIMATES", "HELD", "LOSS", "WIDTH", "AT ONCE TRUE", "NO INTERVAL", "WAITING", "LOSS OVER THAT OF")
_WORST = ("JOB", "QUEUE", "SAID AT", "FROM", "TO", "STARTED", "LOSS")


def estimates(output: Output = Format.table) -> None:
    """Show how right the estimates of starts were: by queue, then those that were furthest off.

    HELD: the part of the 80 % intervals in which the job started. LOSS: pinball loss in log seconds, 0 is best. WIDTH: the interval's
    length over its middle. LOSS OVER THAT OF: below 1, the estimates are better than that simple way.

    fairlead estimates

    fairlead estimates -o json
    """
    with connect() as client:
        found = client.estimates()
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found, output))
    elif output is Format.names:
        terminal.write("".join(f"{each.queue}\n" for each in found.queues))
    else:
        terminal.write("".join(lines(found)))


def lines(found: Estimates) -> Iterator[str]:
    """Return the parts of the page."""
    if not found.queues:
        yield "no estimate yet: each of a sample of submits is estimated, and joined with what comes\n"
        return
    yield terminal.table([_queue(each) for each in found.queues], [TableColumn(head, str) for head in _HEAD])
    if found.worst:
        yield "\nfurthest off:\n"
        yield terminal.table([_worst(each) for each in found.worst], [TableColumn(head, str) for head in _WORST])


def _queue(each: QueueEstimates) -> tuple[str, ...]:
    against = ", ".join(f"{way.replace('_', ' ')} {value:.2f}" for way, value in each.against.items())
    return (
        each.queue,
        str(each.estimates),
        "-" if each.coverage is None else f"{each.coverage:.0%}",
        "-" if each.pinball is None else f"{each.pinball:.2f}",
        "-" if each.width is None else f"{each.width:.1f}",
        f"{each.at_once_true} of {each.at_once}",
        str(each.unknown),
        str(each.waiting),
        against or "-",
    )


def _worst(each: EstimateGiven) -> tuple[str, ...]:
    return (each.job, each.queue, each.at, each.from_at, each.to_at, each.started_at, f"{each.loss:.2f}")
