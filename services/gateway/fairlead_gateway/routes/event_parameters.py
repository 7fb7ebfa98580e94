"""Query parameters by which routes that list events leave some out; `event_filter.py` reads their words."""

from typing import Annotated

from fastapi import Query

from fairlead_gateway.routes import grammar

OfJob = Annotated[
    str,
    Query(
        json_schema_extra=grammar.JOB,
        description="Only events about this job; of an array, about its elements as well.",
    ),
]
OfTypes = Annotated[
    str,
    Query(
        json_schema_extra=grammar.EVENT_TYPES,
        description="Only these types: job.placed, JobPlaced or node.*; joined by commas.",
    ),
]
OfNodes = Annotated[
    str,
    Query(json_schema_extra=grammar.TOKENS, description="Only events that name one of these nodes, joined by commas."),
]
OfUsers = Annotated[
    str,
    Query(
        json_schema_extra=grammar.TOKENS,
        description="Only events about jobs of these users, or by them, joined by commas.",
    ),
]
OfQueues = Annotated[
    str,
    Query(
        json_schema_extra=grammar.QUEUES,
        description="Only events about these queues, those below them and their jobs, joined by commas.",
    ),
]
