"""The share of Kubernetes' Kueue: what a queue borrows beyond its nominal quota, over what its cohort could lend.

Their definition, for comparison like for like: value = ceil(1000 * borrowed(r) / lendable(r) / weight) for the
resource r with the largest ratio; borrowed = usage + pending - nominal, floored at 0 per flavor and summed per
resource over flavors; lendable = the sum of nominal quotas in the cohort. (kubernetes-sigs/kueue, "fair sharing".)
"""

from collections.abc import Mapping
from typing import NamedTuple

#: What Kueue gives a borrower of weight 0: behind everybody else.
LAST = (1 << 63) - 1

type Quota = Mapping[str, int]


class Borrowed(NamedTuple):
    """`resource` is None, and `value` 0, when nothing is borrowed."""

    resource: str | None
    value: int
    borrowing: bool


def dominant_share(
    nominal: Mapping[str, Quota], usage: Mapping[str, Quota], lendable: Quota, weight: int, pending: Mapping[str, Quota]
) -> Borrowed:
    """Return the share of one queue; quotas as {flavor: {resource: amount}}, lendable as {resource: amount}. Equal ratios: first name."""
    borrowed: dict[str, int] = {}
    for flavor in nominal.keys() | usage.keys() | pending.keys():
        used, wanted, own = usage.get(flavor, {}), pending.get(flavor, {}), nominal.get(flavor, {})
        for resource in used.keys() | wanted.keys():
            beyond = used.get(resource, 0) + wanted.get(resource, 0) - own.get(resource, 0)
            borrowed[resource] = borrowed.get(resource, 0) + max(0, beyond)
    best, ratio = None, (0, 1)
    for resource in sorted(borrowed):
        over, under = borrowed[resource], lendable.get(resource, 0)
        if over and under and over * ratio[1] > ratio[0] * under:
            best, ratio = resource, (over, under)
    borrowing = any(borrowed.values())
    if best is None:
        return Borrowed(None, 0, borrowing)
    if not weight:
        return Borrowed(best, LAST, True)
    return Borrowed(best, -(-1000 * ratio[0] // (ratio[1] * weight)), True)
