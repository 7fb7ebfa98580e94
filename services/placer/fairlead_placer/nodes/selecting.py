"""Nodes of a plan: the named ones, and those that match a label selector. The module reads the state and changes nothing."""

from fairlead_placer.nodes.answers import Refusal
from fairlead_placer.state import State
from fairlead_schemas.units import selectors
from fairlead_schemas.units.ids import is_token


def selected(
    state: State, named: tuple[str, ...], selector: tuple[str, ...], *, every: bool = False, most: int
) -> tuple[str, ...] | Refusal:
    """Return the names of the selected nodes, sorted, at least one; or the refusal."""
    unknown = sorted(set(named) - state.nodes.keys())
    if unknown:
        return Refusal("not_found", f'expected names of known nodes, found "{unknown[0][:80]}"')
    found = set(named)
    if every:
        found.update(state.nodes)
    elif selector:
        found.update(name for name, node in state.nodes.items() if selectors.suits(node.inventory.labels, selector))
    if not 0 < len(found) <= most:
        return Refusal("bad_nodes", f"expected 1 to {most} nodes, found {len(found)}")
    return tuple(sorted(found))


def fault_of_name(name: str) -> Refusal | None:
    """Return the refusal of a plan's name, None if it is valid."""
    return None if is_token(name) else Refusal("bad_name", f'expected a name of a-z 0-9 _ -, found "{name[:80]}"')
