"""Questions answered from the queue's folded state: its own functions, and words for jobs that do not wait. Pure."""

import msgspec

from fairlead_queue.explain.explain import explain
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Array
from fairlead_schemas.queries.explainer import ExplainerAnswer, Explanation
from fairlead_schemas.units.ids import array_of, is_job_id

#: Characters of a job's id that are repeated to the sender.
SHOWN_CHARS_MAX = 40


def why(state: State, sequence: int, id_: str) -> ExplainerAnswer:
    """Return the reason for a job's state as of a sequence; `not_found` where the state does not know the job."""
    job = state.jobs.get(id_)
    if job is not None:
        return ExplainerAnswer(sequence=sequence, why=explain(state, job))
    ended = state.finished.get(id_)
    if ended is not None:
        return ExplainerAnswer(sequence=sequence, why=Explanation(reason="", message=f"job {id_} has ended: {ended}"))
    array = state.jobs.get(array_of(id_) or "")
    if isinstance(array, Array) and array.is_unborn(id_):
        told = explain(state, array)
        message = f"it comes into being when it is offered, by its array {array.id}"
        if told.message:
            message += f"; of that: {told.message}"
        return ExplainerAnswer(sequence=sequence, why=msgspec.structs.replace(told, message=message))
    return ExplainerAnswer(sequence=sequence, error="not_found", message=_missing(state, sequence, id_))


def _missing(state: State, sequence: int, id_: str) -> str:
    shown = id_[:SHOWN_CHARS_MAX]
    if not is_job_id(id_):
        return f'"{shown}" is no id of a job: expected a number such as 812, or 812_3 for an array\'s element'
    number = int(array_of(id_) or id_)
    if number >= state.next_number:
        return f"job {shown} was not there at sequence {sequence}: the newest was {state.next_number - 1}"
    if array_of(id_) is not None:
        return f"element {shown} ended long ago, or its array does not have it"
    return f"job {shown} ended long ago; how is told by its events"
