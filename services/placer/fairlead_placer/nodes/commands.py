"""Commands to the placer: each is carried out or refused, and answered by an event either way. Emits on a draft."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.draft import Draft
from fairlead_placer.nodes import blackhole, breaker, duty, fencing, health, removing, rollouts, tainting, windows
from fairlead_placer.nodes.answers import Refusal, rejected
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire.commands import PlacerCommand, Undecodable

type Handler = Callable[[Draft, Any, str], Refusal | None]

HANDLERS: dict[type, Handler] = {
    cmd.CordonNode: duty.cordon,
    cmd.UncordonNode: duty.uncordon,
    cmd.DrainNode: duty.drain,
    cmd.TaintNode: tainting.taint,
    cmd.UntaintNode: tainting.untaint,
    cmd.QuarantineNode: blackhole.quarantine,
    cmd.UnquarantineNode: blackhole.release,
    cmd.RestoreGpu: health.restore,
    cmd.DeclareNodeDead: fencing.declare_dead,
    cmd.RemoveNode: removing.remove,
    cmd.ResetBreaker: breaker.reset,
    cmd.ScheduleMaintenance: windows.schedule,
    cmd.CancelMaintenance: windows.cancel,
    cmd.StartRollout: rollouts.start,
    cmd.PauseRollout: rollouts.pause,
    cmd.ResumeRollout: rollouts.resume,
    cmd.CancelRollout: rollouts.cancel,
    cmd.FinishRolloutNode: rollouts.finish,
}


def command(draft: Draft, asked: PlacerCommand | Undecodable) -> None:
    """Carry out one command, or record why not."""
    if isinstance(asked, Undecodable):
        rejected(draft, asked.id or asked.digest[:16], Refusal("undecodable", asked.message), asked.digest)
        return
    node: str | None = getattr(asked, "node", None)
    if node is not None and node not in draft.state.nodes:
        refusal = Refusal("not_found", f'expected the name of a known node, found "{node[:80]}"')
    else:
        refusal = HANDLERS[type(asked)](draft, asked, f"cmd:{asked.id}")
    if refusal is not None:
        rejected(draft, asked.id, refusal)
