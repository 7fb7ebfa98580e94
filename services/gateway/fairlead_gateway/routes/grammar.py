"""Forms of texts in parameters, as the OpenAPI document states them, and the parameters of routes that list events.

The code that reads a text decides (of the parameters: `event_filter.py`); these say what it takes. Pure.
"""

from typing import Annotated, Any

from fastapi import Query

from fairlead_schemas.policies.rights import VERBS
from fairlead_schemas.wire.lifecycle import STATES as _STATES

_NAME = "[a-z0-9][a-z0-9_-]{0,62}"
_PATH = f"{_NAME}(/{_NAME}){{0,7}}"
_DURATION = "[0-9]{1,9}(ms|s|m|h|d|w)?"
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+ -][0-9]{2}:[0-9]{2})"


def _form(pattern: str) -> dict[str, Any]:
    """Return the schema of a parameter that may be left out, or be empty."""
    return {"pattern": f"^({pattern})?$"}


def _list(pattern: str) -> dict[str, Any]:
    return _form(f"{pattern}(,{pattern})*,?")


TOKENS, QUEUES, STATES = _list(_NAME), _list(_PATH), _list(f"({'|'.join(_STATES)})")
JOBS = {"pattern": "^[1-9][0-9]{0,17}(_[0-9]{1,7})?(,[1-9][0-9]{0,17}(_[0-9]{1,7})?)*$"}
JOB = _form("[1-9][0-9]{0,17}(_[0-9]{1,7})?")
QUEUE = _form(_PATH)
#: A sequence, a time, or how long ago.
MOMENT = _form(f"[0-9]{{1,18}}|{_TIME}|[0-9A-Za-z ]{{1,60}} ago")
TIME = _form(_TIME)
#: A time, or how long ago.
SINCE = _form(f"{_DURATION}|{_TIME}")
EVENT_TYPES = _list("[A-Za-z*?][A-Za-z0-9._*?-]*")
RIGHT = {"enum": list(VERBS)}

OfJob = Annotated[
    str,
    Query(
        json_schema_extra=JOB,
        description="Only events about this job; of an array, about its elements as well.",
    ),
]
OfTypes = Annotated[
    str,
    Query(
        json_schema_extra=EVENT_TYPES,
        description="Only these types: job.placed, JobPlaced or node.*; joined by commas.",
    ),
]
OfNodes = Annotated[
    str,
    Query(json_schema_extra=TOKENS, description="Only events that name one of these nodes, joined by commas."),
]
OfUsers = Annotated[
    str,
    Query(
        json_schema_extra=TOKENS,
        description="Only events about jobs of these users, or by them, joined by commas.",
    ),
]
OfQueues = Annotated[
    str,
    Query(
        json_schema_extra=QUEUES,
        description="Only events about these queues, those below them and their jobs, joined by commas.",
    ),
]
