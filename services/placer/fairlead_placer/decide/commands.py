"""Commands to the placer: each is carried out or refused, and answered by an event either way. Emits on a draft."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.apply.draft import CommandRefusal, CommitDraft, reject_command
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
from fairlead_schemas.wire.commands import PlacerCommand, Undecodable

type Handler = Callable[[CommitDraft, Any, str], CommandRefusal | None]

COMMAND_HANDLERS: dict[type, Handler] = {
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


def command(draft: CommitDraft, asked: PlacerCommand | Undecodable) -> None:
    """Carry out one command, or record why not."""
    if isinstance(asked, Undecodable):
        reject_command(draft, asked.id or asked.digest[:16], CommandRefusal("undecodable", asked.message), asked.digest)
        return
    node: str | None = getattr(asked, "node", None)
    if node is not None and node not in draft.state.nodes:
        refusal = CommandRefusal("not_found", f'expected the name of a known node, found "{node[:80]}"')
    else:
        refusal = COMMAND_HANDLERS[type(asked)](draft, asked, f"cmd:{asked.id}")
    if refusal is not None:
        reject_command(draft, asked.id, refusal)
