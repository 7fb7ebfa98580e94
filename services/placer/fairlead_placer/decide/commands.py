"""Commands to the placer: each is carried out or refused, and answered by an event either way. Emits on a draft."""

from collections.abc import Callable
from typing import Any

from fairlead_bus.core import CommandRefusal, encoded_bytes, rejected, undecodable
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.decide import (
    circuit_breaker,
    cordon,
    fencing,
    health,
    maintenance_windows,
    membership,
    quarantine,
    rollouts,
)
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev

HANDLERS: dict[type, Callable[[PlacerDraft, Any, str], CommandRefusal | None]] = {
    cmd.CordonNode: cordon.cordon,
    cmd.UncordonNode: cordon.uncordon,
    cmd.DrainNode: cordon.drain,
    cmd.TaintNode: cordon.taint,
    cmd.UntaintNode: cordon.untaint,
    cmd.QuarantineNode: quarantine.quarantine,
    cmd.UnquarantineNode: quarantine.release,
    cmd.RestoreGpu: health.restore,
    cmd.DeclareNodeDead: fencing.declare_dead,
    cmd.RemoveNode: membership.remove,
    cmd.ResetBreaker: circuit_breaker.reset,
    cmd.ScheduleMaintenance: maintenance_windows.schedule,
    cmd.CancelMaintenance: maintenance_windows.cancel,
    cmd.StartRollout: rollouts.start,
    cmd.PauseRollout: rollouts.pause,
    cmd.ResumeRollout: rollouts.resume,
    cmd.CancelRollout: rollouts.cancel,
    cmd.FinishRolloutNode: rollouts.finish,
}


def decide_command(draft: PlacerDraft, command: cmd.PlacerCommand | cmd.Undecodable) -> None:
    """Decide one command: carry it out, or record why not."""
    if isinstance(command, cmd.Undecodable):
        _reject(draft, undecodable(ev.NodeCommandRejected, command))
        return
    draft.repeat(command.authority)
    node: str | None = getattr(command, "node", None)
    if node is not None and node not in draft.state.nodes:
        refusal = CommandRefusal("not_found", f'expected the name of a known node, found "{node[:80]}"')
    else:
        refusal = HANDLERS[type(command)](draft, command, f"cmd:{command.id}")
    if refusal is not None:
        _reject(draft, rejected(ev.NodeCommandRejected, command, refusal))
    draft.repeat(None)


def _reject(draft: PlacerDraft, event: ev.NodeCommandRejected) -> None:
    draft.emit(event, encoded_bytes(event.message))
