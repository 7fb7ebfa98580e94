"""Events about a job that its readers see, with the fields that are left out. Telemetry and the gateway show the same.

A new type of event is not shown to them until a person states here which of its fields speak of others.
"""

#: Events about a job, by what of their body speaks of others' jobs and is left out.
EVENTS_SHOWN: dict[str, tuple[str, ...]] = {
    "AllocationReleased": (),
    "CheckpointSaved": (),
    "CommandRepeated": (),
    "DeadlineMissed": (),
    "JobActive": (),
    "JobCancelled": (),
    "JobDeferred": ("holder",),
    "JobExtended": (),
    "JobFailed": (),
    "JobHeld": (),
    "JobIdle": (),
    "JobMoved": (),
    "JobOffered": (),
    "JobPlaced": ("guest_of",),
    "JobQueued": (),
    "OfferWithdrawn": (),
    "JobReleased": (),
    "JobRequeued": (),
    "JobStopRequested": (),
    "JobSubmitted": (),
    "JobSucceeded": (),
    "JobUnplaceable": ("near",),
    "LeaseShrunk": (),
    "OfferReturned": (),
    "PreemptionDeclined": (),
    "PreemptionRequested": ("victims",),
    "PreemptionStarted": ("beneficiary",),
    "RankEnded": (),
    "RankStarted": (),
    "ReclaimSimulated": (),
    "ReclaimRequested": (),
    "ReservationEnded": (),
    "ReservationMade": ("waits_for",),
    "ReservationRequested": (),
    "RunEnded": (),
    "RunStarted": (),
}
