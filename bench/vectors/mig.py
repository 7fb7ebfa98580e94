"""Streams of requests for MIG instances on one empty GPU: the shape of their table, and what our layout choice grants.

The requests wait in their order, as they do in a queue, and the GPU is cut for them as the placer cuts it (plan_for): each is
granted if an instance for it fits next to those granted before it. No instance is moved, and nothing leaves.
"""

from collections.abc import Iterator

import msgspec

from bench.vectors.fairshare import Case, named
from fairlead_placer.mig.instance_choice import MigGpu
from fairlead_placer.mig.layouts import Layout, legal_fault
from fairlead_placer.mig.models import BY_NAME, Model, find_model
from fairlead_placer.mig.repartition import WAITING_MAX, plan_for


class StreamCase(msgspec.Struct, frozen=True):
    """`gpu`: a model such as "A100-40GB", or a product's name that tells its memory. A profile that it has not is refused."""

    name: str
    gpu: str
    requests: list[str]
    expect: list[bool]


def model_of(gpu: str) -> Model:
    """Return the GPU's model. Raises ValueError if its layouts are not known."""
    found = BY_NAME.get(gpu) or find_model(gpu)
    if not isinstance(found, Model):
        raise ValueError(f"{found.reason}; expected one of {', '.join(BY_NAME)}")
    return found


def granted(model: Model, requests: list[str]) -> tuple[list[bool], Layout]:
    """Return which of the requests an empty GPU grants, and how it is then cut. A plan looks WAITING_MAX requests ahead."""
    layout, answers = Layout(), list[bool]()
    while len(answers) < len(requests):
        waiting = requests[len(answers) : len(answers) + WAITING_MAX]
        plan = plan_for(MigGpu("gpu", model, layout), waiting)
        served: tuple[int, ...] = ()
        if plan is not None:
            served, layout = plan.served_after, Layout(layout.busy + plan.create)
        answers += [position in served for position in range(len(waiting))]
    assert not legal_fault(model, layout.busy), f"{model.name} is cut as it may not be: {layout}"
    return answers, layout


def streams(cases: list[StreamCase]) -> Iterator[Case]:
    """Each stream on a GPU of its own."""
    for case in cases:
        with named(case.name):
            answers, _ = granted(model_of(case.gpu), case.requests)
        yield Case(case.name, case.expect, answers)
