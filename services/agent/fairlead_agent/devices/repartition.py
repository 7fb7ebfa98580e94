"""Carrying out a layout order: step by step, looked at afterwards, and taken back where a step fails. Knows no driver.

All that is to go is destroyed before the first instance is made, so every step leaves a part of a legal layout.
"""

from collections.abc import Callable
from typing import Annotated, Protocol

import msgspec

from fairlead_schemas.wire.desired import LayoutOrder
from fairlead_schemas.wire.resources import MigInstance


class MigTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MIG profile that a GPU can be cut into: its possible start slices, and its size in memory slices."""

    profile: str
    starts: tuple[int, ...]
    size: Annotated[int, msgspec.Meta(ge=1)]


class CutFailed(Exception):
    """A step was refused; the message is the driver's."""


class Cutter(Protocol):
    """Interface of one GPU for changes of its MIG layout. Each step raises CutFailed."""

    def instances(self) -> tuple[MigInstance, ...]:
        """Return the GPU's present instances; none if MIG mode is off."""
        ...

    def is_on(self) -> bool:
        """Return True if MIG mode is on."""
        ...

    def switch(self, on: bool) -> None:
        """Turn MIG mode on or off. The GPU must not be in use."""
        ...

    def destroy(self, instance: MigInstance) -> None:
        """Remove an instance. The instance must not be in use."""
        ...

    def create(self, profile: str, start: int) -> None:
        """Make an instance at that memory slice."""
        ...


def carry_out(cutter: Cutter, order: LayoutOrder) -> str:
    """Cut the GPU as ordered. "", or why it was not done: then what was there is put back, or the words say what was not."""
    undo: list[Callable[[], None]] = []
    try:
        _steps(cutter, order, undo)
        _verify(cutter, order)
    except CutFailed as error:
        return f"{error}{_take_back(undo)}"
    return ""


def _steps(cutter: Cutter, order: LayoutOrder, undo: list[Callable[[], None]]) -> None:
    there = {each.uuid: each for each in cutter.instances()}
    unknown = [each.uuid for each in order.destroy if each.uuid not in there]
    if unknown:
        raise CutFailed(f"there is no instance {unknown[0]}")
    if order.mode == "off" and len(order.destroy) < len(there):
        raise CutFailed("other instances are on the GPU")
    if order.mode == "on":
        cutter.switch(True)
        undo.append(lambda: cutter.switch(False))
    for each in order.destroy:
        cutter.destroy(each)
        undo.append(lambda each=each: cutter.create(each.profile, each.start))
    for place in order.create:
        cutter.create(place.profile, place.start)
        undo.append(lambda place=place: _destroy_at(cutter, place.profile, place.start))
    if order.mode == "off":
        cutter.switch(False)
        undo.append(lambda: cutter.switch(True))


def _destroy_at(cutter: Cutter, profile: str, start: int) -> None:
    for each in cutter.instances():
        if (each.profile, each.start) == (profile, start):
            cutter.destroy(each)


def _verify(cutter: Cutter, order: LayoutOrder) -> None:
    """Verify the new layout by the driver's present state, not by its answers. Raises CutFailed."""
    if cutter.is_on() == (order.mode == "off"):
        raise CutFailed(f"MIG mode is {'still on' if cutter.is_on() else 'not on'}")
    remaining = {each.uuid for each in cutter.instances()}
    stayed = [each for each in order.destroy if each.uuid in remaining]
    if stayed:
        raise CutFailed(f"{stayed[0].profile} was destroyed, and is still at {stayed[0].start}")
    there = {(each.profile, each.start) for each in cutter.instances()}
    missing = [each for each in order.create if (each.profile, each.start) not in there]
    if missing:
        raise CutFailed(f"{missing[0].profile} was made, and is not at {missing[0].start}")


def _take_back(undo: list[Callable[[], None]]) -> str:
    """Undo the steps in reverse order and return the failures as words to be added, "" if none. A failed step does not
    keep the others from being tried.
    """
    failed: list[str] = []
    for step in reversed(undo):
        try:
            step()
        except CutFailed as error:
            failed.append(str(error))
    return f"; and what was there could not be put back: {'; '.join(failed)}" if failed else ""
