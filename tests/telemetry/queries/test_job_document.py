"""A job's document from its events alone: what its application said."""

from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.queries.job_document import LoggedEvent, fold_job
from tests.telemetry.story import START_NS, offered, placed, started, submitted


def test_a_session_was_ready_until_it_started_again() -> None:
    """As the gateway has it: the first word of its application, until another run starts."""
    happened = [submitted("1"), offered("1"), placed("1", n1=1), started("1")]
    ready = [*happened, ev.AppReady(cause="report:n1:3", job="1", attempt=1)]
    again = [*ready, ev.JobRequeued(cause="5.0", job="1", attempt=2, reason="node_lost")]
    again += [offered("1", 2), placed("1", 2, n1=1)]

    def ready_at(events: list[ev.Event]) -> str | None:
        log = [LoggedEvent(n, START_NS + n * SECOND_NS, event) for n, event in enumerate(events)]
        return fold_job("1", log[0], log).ready_at

    assert ready_at(happened) is None
    assert ready_at(ready) == ready_at(again) == rfc3339(START_NS + 4 * SECOND_NS)
    assert ready_at([*again, started("1", 2)]) is None
