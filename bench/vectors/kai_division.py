"""The division of NVIDIA's KAI Scheduler: what is deserved first, then the rest by over-quota weight and priority.

Their definition, for comparison like for like: each level first gives min(deserved, request) to every queue; what is
left of the level's amount goes to those that ask for more, higher priority first, within a priority by weight, in
whole GPUs. (NVIDIA/KAI-Scheduler, "proportion" plugin.)
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Claim(NamedTuple):
    """Queue among its siblings; amounts in whole GPUs."""

    name: str
    deserved: int
    request: int
    weight: int = 1
    priority: int = 0


def divide(total: int, claims: Sequence[Claim]) -> dict[str, int]:
    """{queue: its fair share} of `total` GPUs. A deserved amount is given even where the level has less."""
    given = {claim.name: min(claim.deserved, claim.request) for claim in claims}
    left = total - sum(given.values())
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        equals = [claim for claim in claims if claim.priority == priority]
        while left > 0:
            asking = [claim for claim in equals if claim.weight and given[claim.name] < claim.request]
            if not asking:
                break
            left -= _round(left, asking, given)
    return given


def _round(left: int, asking: Sequence[Claim], given: dict[str, int]) -> int:
    """Give one round by weight, rounded down; when that gives no queue a whole GPU, the largest remainders get one each."""
    weights = sum(claim.weight for claim in asking)
    spent = 0
    for claim in asking:
        more = min(left * claim.weight // weights, claim.request - given[claim.name])
        given[claim.name] += more
        spent += more
    if spent:
        return spent
    for claim in sorted(asking, key=lambda claim: (-(left * claim.weight % weights), claim.name))[:left]:
        given[claim.name] += 1
        spent += 1
    return spent


def divide_tree(total: int, departments: Mapping[Claim, Sequence[Claim]]) -> dict[str, int]:
    """Departments first, then the queues of each out of its department's share."""
    shares = divide(total, list(departments))
    result = dict(shares)
    for department, queues in departments.items():
        result |= divide(shares[department.name], queues)
    return result
