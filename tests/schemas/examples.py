"""One example of every type that crosses a wire, with every field set to something that is not its default.

The golden files hold their bytes. A new type or field gets its example here; `--update-golden` writes the files.
"""

import msgspec

from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.policies.idle import IdleEvidence, IdlePolicy
from fairlead_schemas.policies.partitions import OnPartition
from fairlead_schemas.policies.services import ServiceRules
from fairlead_schemas.queries import explainer
from fairlead_schemas.queries.cluster_map import DomainCapacity, OneNode, PoolPacking
from fairlead_schemas.queries.explainer import Defrag, DefragMove, DefragPlan
from fairlead_schemas.queuefile import settings
from fairlead_schemas.wire import commands, desired, events, rank_rpc, reports, samples
from fairlead_schemas.wire.authority import Authority
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit
from fairlead_schemas.wire.resources import Gpu, Inventory, MigInstance, MigPlace, NodeTopology, NumaNode, Request

CHECKPOINT = Checkpoint(signal="SIGUSR1", command=("/save", "now"), notice_ns=120 * 10**9, every_ns=1800 * 10**9)
REQUEST = Request(
    nodes=2,
    gpu_milli=8000,
    cpu_milli=32000,
    memory_mib=262144,
    shm_mib=65536,
    selector=("nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB",),
    gpu_memory_mib=40960,
    compute_capability=80,
    pool="a100",
    gpu_parts=2,
    profile="3g.20gb",
    replicas=True,
    tasks=True,
    nodes_min=1,
    exclusive=True,
    nics=1,
    tolerations=("fairlead/spot=yes:NoSchedule",),
    require=("rack",),
    prefer=("numa",),
    packing="spread",
    also=(Request(nodes=1, gpu_milli=1000, cpu_milli=4000, memory_mib=8192, selector=("fairlead/rack=r2",)),),
)
QUEUE = settings.QueueSettings(
    pool="a100",
    guaranteed={"gpu": 16000, "gpu:NVIDIA-A100-SXM4-80GB": 8000},
    maximum={"gpu": 64000, "memory": 1048576},
    borrowing={"gpu": 32000},
    lending={"gpu": 8000, "cpu": 0},
    weight=3,
    priority=1,
    users={"*": {"gpu": 8000}, "ada": {"gpu": 16000}},
    budget=settings.Budget(gpu_milli_s=1000 * settings.GPU_HOUR_MILLI_S, period="week", when_spent="demote"),
    preemption=settings.Preemption(reclaim="lower_priority", rebalance=True, lower_priority=False, protect_ns=10**9),
)
POLICY = IdlePolicy(
    rule="utilization",
    action="shrink",
    mode="on_demand",
    below={"gpu": 50, "network": 10_000},
    after_ns=600 * 10**9,
    notice_ns=300 * 10**9,
    extend_ns=3600 * 10**9,
    extensions_max=2,
    shrink_ns=900 * 10**9,
    kinds=("session",),
    after_max_ns=7200 * 10**9,
    may_soften=True,
)
EVIDENCE = (
    IdleEvidence(signal="gpu", highest=12, mean=3, threshold=50, samples=600),
    IdleEvidence(signal="network", highest=811, mean=90, threshold=10_000, samples=598),
)
POOL = settings.PoolSettings(
    sequencer="fairshare",
    half_life_ns=86400 * 10**9,
    past_percent=50,
    users=("ada",),
    projects=("llm",),
    ageing=settings.Ageing(every_ns=3600 * 10**9, most=10),
    patience_ns=60 * 10**9,
    prices={"NVIDIA-A100-SXM4-80GB": 2500},
    sharing=settings.Sharing(replicas=4, one_each=True),
    defragment=True,
    packing="spread",
)
INVENTORY = Inventory(
    gpus=(
        Gpu(
            uuid="GPU-sim-1-0",
            index=0,
            model="NVIDIA A100-SXM4-80GB",
            memory_mib=81920,
            compute_capability=80,
            numa=1,
            ecc="on",
            mig=True,
            instances=(MigInstance(uuid="MIG-sim-1-0-3", profile="3g.40gb", start=4),),
        ),
    ),
    cpu_milli=64000,
    memory_mib=1048576,
    labels={"nvidia.com/gpu.count": "1", "fairlead/rack": "r1"},
    runtime="docker",
    simulated=True,
    address="10.0.0.7",
    hostname="sim-1.example.org",
    inside=NodeTopology(
        numa=(1,),
        nvlinks=((0,),),
        pcie=(("X",),),
        numa_nodes=(NumaNode(node=1, cpus="32,96,33,97", socket=1),),
        nics=("mlx5_0",),
        nic_levels=(("PXB",),),
    ),
    taints=("team=vision:NoSchedule",),
)
PART = events.Part(
    node="sim-1",
    gpus=("GPU-sim-1-0",),
    cpu_milli=32000,
    memory_mib=262144,
    gpu_milli=429,
    gpu_memory_mib=20480,
    instances=("MIG-sim-1-0-3",),
    cpus="0-15,32-47",
    nics=("mlx5_0",),
    tasks=2,
)
SPEC = msgspec.Raw(b'{"command":["torchrun","train.py"],"name":"train-llm"}')
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
IMAGE = f"registry.example/pytorch@sha256:{DIGEST}"
AT_NS = 1_800_000_000_000_000_000
SUBMIT = "cmd:c1"

REPLICA_JOB = events.ReplicaJob(
    request=REQUEST,
    spec=SPEC,
    project="llm",
    priority=70,
    total_ns=7 * 86400 * 10**9,
    grace_ns=120 * 10**9,
    slice_ns=3600 * 10**9,
    on_partition=OnPartition(stop_after_ns=30 * 10**9, replace_after_ns=-1),
    checkpoint=CHECKPOINT,
    gang="leader",
)
SERVICE_RULES = ServiceRules(
    replicas_min=0,
    replicas_max=4,
    requests=8,
    surge=2,
    unavailable=1,
    drain_ns=30 * 10**9,
    calm_ns=600 * 10**9,
)

EVENTS: list[events.EventBase] = [
    events.QueuesApplied(cause=SUBMIT, command="c1", configured=2, removed=1, unchanged=3, by="ada", reclaim=True),
    events.PoolConfigured(cause=SUBMIT, pool="a100", settings=POOL, by="ada"),
    events.PoolRemoved(cause=SUBMIT, pool="old", by="ada"),
    events.QueueConfigured(cause=SUBMIT, path="research/vision", settings=QUEUE, gpu_quota_milli=16000, by="ada"),
    events.QueueRemoved(cause=SUBMIT, path="research/old", move_to="research/vision", by="ada"),
    events.QueueHeld(cause=SUBMIT, path="research/vision", reason="storage moves", by="ada"),
    events.QueueDrained(cause=SUBMIT, path="research/vision", reason="closes on Friday", by="ada"),
    events.PriceSet(
        cause=SUBMIT, model="NVIDIA-H100-80GB-HBM3", micro=2_490_000, currency="EUR", from_ns=AT_NS, by="ada"
    ),
    events.QueueReleased(cause=SUBMIT, path="research/vision", by="ada"),
    events.JobSubmitted(
        cause=SUBMIT,
        authority=Authority(principal="p7f3k", via="token:t9x2m", rights=4711, act_as="p1c8d"),
        job="812",
        name="train-llm",
        queue="research/vision",
        user="ada",
        request=REQUEST,
        spec=SPEC,
        project="llm",
        kind="session",
        priority=70,
        array=(0, 7),
        retries=3,
        total_ns=7 * 86400 * 10**9,
        grace_ns=120 * 10**9,
        start_at_ns=AT_NS,
        deadline_ns=AT_NS + 86400 * 10**9,
        slice_ns=3600 * 10**9,
        after=(events.Dependency(job="811", state="ended"),),
        array_limit=2,
        on_partition=OnPartition(stop_after_ns=30 * 10**9, replace_after_ns=-1),
        checkpoint=CHECKPOINT,
        gang="leader",
        held=True,
        key="5d41402abc4b2a76",
        digest="7d793037a0760186",
        service="chat",
        revision=2,
    ),
    events.ServiceApplied(
        cause=SUBMIT,
        service="chat",
        queue="research/vision",
        user="ada",
        revision=2,
        template=REPLICA_JOB,
        rules=SERVICE_RULES,
    ),
    events.ServiceScaled(cause=SUBMIT, service="chat", wanted=3, reason="load", rules=SERVICE_RULES, by="ada"),
    events.ServiceLoad(cause=SUBMIT, service="chat", proxy="p7f3k", in_flight=12),
    events.ServiceBlocked(
        cause="clock", service="chat", code="queue_drained", message="queue research/vision is drained"
    ),
    events.ReplicaRetired(cause="clock", service="chat", job="812", reason="drain"),
    events.ServiceStopped(cause=SUBMIT, service="chat", by="ada"),
    events.ServiceKeyIssued(
        cause=SUBMIT,
        service="chat",
        key="a1b2c3d4e5",
        name="web shop",
        per_minute=600,
        in_flight=8,
        expires_ns=AT_NS,
        by="ada",
    ),
    events.ServiceKeyRevoked(cause=SUBMIT, service="chat", key="a1b2c3d4e5", by="ada"),
    events.JobRejected(
        cause=SUBMIT,
        command="c1",
        code="unknown_queue",
        message="no queue x",
        field="queue",
        user="ada",
        queue="x",
        request=REQUEST,
        total_ns=3_600_000_000_000,
        array=(0, 9),
        project="llm",
    ),
    events.JobQueued(cause="clock", job="812"),
    events.JobMoved(cause="cmd:c2", job="812", queue="research/speech", by="ada"),
    events.JobUpdated(
        cause="cmd:c2",
        job="812",
        name="train-2",
        priority=70,
        total_ns=7_200_000_000_000,
        labels={"a": "b"},
        extends=True,
        by="ada",
    ),
    events.PriorityAged(cause="clock", jobs=("811", "812")),
    events.JobDeferred(
        cause="clock",
        job="812",
        attempt=1,
        reason="maximum",
        queue="research",
        resource="gpu",
        held=60000,
        needed=8000,
        ceiling=64000,
        holder="811",
    ),
    events.DeadlineMissed(cause="clock", job="812", deadline_ns=AT_NS),
    events.ReservationRequested(cause="clock", job="812", attempt=1, waited_ns=300 * 10**9, queue="research"),
    events.PreemptionRequested(
        cause="clock",
        job="812",
        attempt=1,
        victims=(events.Victim(job="700", attempt=1, rule="over_guarantee", gpu_s=3600),),
        queue="research",
        amounts={"gpu": 4000},
    ),
    events.BudgetReached(cause="clock", queue="research", percent=80, spent=80, budget=100, period_ns=AT_NS),
    events.JobOffered(cause="clock", job="812_3", attempt=1, rank=41),
    events.OfferWithdrawn(cause="cmd:c2", job="812", attempt=1, reason="hold", by="ada"),
    events.JobHeld(cause="cmd:c2", job="812", by="ada"),
    events.JobReleased(cause="cmd:c3", job="812", by="ada"),
    events.JobStopRequested(
        cause="cmd:c4", job="812", attempt=2, reason="cancelled", by="ada", save=True, ran_ns=61 * 10**9
    ),
    events.JobSignalRequested(cause="cmd:c4", job="812", attempt=2, signal="SIGUSR1", by="ada"),
    events.JobRequeued(cause="97.0", job="812", attempt=2, reason="retry", not_before_ns=AT_NS),
    events.JobSucceeded(cause="98.1", job="812", attempt=2),
    events.JobFailed(
        cause="98.2", job="812", reason="exit_code", attempt=2, exit_code=137, signal=9, message="out of memory"
    ),
    events.JobCancelled(cause="99.0", job="812", by="ada", attempt=2),
    events.JobsRetired(cause="clock", jobs=("1", "2_0")),
    events.CommandRejected(
        cause="cmd:c5", command="c5", code="unknown_job", message="no job 9", digest=DIGEST, verb="CancelJob", about="9"
    ),
    events.CommandRepeated(cause="cmd:c6", command="c6", job="812"),
    events.NodeJoined(cause="report:sim-1:1", node="sim-1", incarnation="i1", boot_id="b1", inventory=INVENTORY),
    events.NodeChanged(cause="report:sim-1:9", node="sim-1", boot_id="b2", inventory=INVENTORY),
    events.NodeLost(cause="clock", node="sim-1", silent_ns=120 * 10**9),
    events.NodeReturned(cause="clock", node="sim-1"),
    events.NodeDeclaredDead(cause="cmd:c7", node="sim-1", by="ada", reason="its plug is pulled"),
    events.NodeRemoved(cause="cmd:c7", node="sim-1", by="ada", reason="sold"),
    events.NodeCordoned(cause="cmd:c7", node="sim-1", by="ada", reason="new fan", setter="maintenance"),
    events.NodeUncordoned(cause="cmd:c8", node="sim-1", by="ada", setter="rollout"),
    events.NodeDraining(
        cause="cmd:c9", node="sim-1", by="ada", reason="new driver", deadline_ns=AT_NS, setter="rollout"
    ),
    events.NodeDrained(cause="100.0", node="sim-1"),
    events.NodeTainted(
        cause="clock", node="sim-1", taint="fairlead/unhealthy=xid79:NoSchedule", setter="health", by="x", reason="bus"
    ),
    events.NodeUntainted(cause="cmd:c11", node="sim-1", taint="team=a:NoExecute", setter="health", by="ada"),
    events.NodeSuspected(cause="clock", node="sim-1", jobs=("811", "812"), rests_until_ns=1768485600000000000),
    events.NodeCleared(cause="clock", node="sim-1"),
    events.NodeQuarantined(
        cause="clock", node="sim-1", setter="health", by="x", reason="3 different jobs failed fast", jobs=("811", "812")
    ),
    events.NodeUnquarantined(cause="cmd:c12", node="sim-1", by="ada"),
    events.GpuFaulted(
        cause="report:sim-1:7", node="sim-1", gpu="GPU-sim-1-0", code="xid79", reason="off the bus", stop=True
    ),
    events.GpuRestored(cause="cmd:c13", node="sim-1", gpu="GPU-sim-1-0", by="ada"),
    events.NodeUnhealthy(cause="report:sim-1:8", node="sim-1", code="disk_full", reason="3 % left", closes=True),
    events.NodeRecovered(cause="cmd:c13", node="sim-1", code="disk_full", by="ada"),
    events.MigLayoutPlanned(
        cause="812.4",
        node="sim-1",
        gpu="GPU-sim-1-0",
        jobs=("812", "813"),
        mode="on",
        destroy=(MigInstance(uuid="MIG-sim-1-0-1", profile="2g.20gb", start=0),),
        create=(MigPlace(profile="3g.40gb", start=0),),
        score={"created": 1, "destroyed": 1},
    ),
    events.MigLayoutChanged(
        cause="report:sim-1:8", node="sim-1", gpu="GPU-sim-1-0", plan=815, instances=INVENTORY.gpus[0].instances
    ),
    events.MigLayoutFailed(
        cause="report:sim-1:8", node="sim-1", gpu="GPU-sim-1-0", plan=815, reason="3g.40gb at 0: Insufficient Resources"
    ),
    events.MigLayoutDropped(cause="clock", node="sim-1", gpu="GPU-sim-1-0", plan=815, reason="late"),
    events.BreakerTripped(cause="clock", kind="loss", found=11, allowed=10, of=64),
    events.BreakerReset(cause="cmd:c14", by="ada"),
    events.MaintenanceScheduled(
        cause="cmd:c15",
        name="cooling",
        nodes=("sim-1", "sim-2"),
        starts_ns=AT_NS,
        ends_ns=AT_NS + 3600 * 10**9,
        notice_ns=1800 * 10**9,
        by="ada",
        reason="new pump",
    ),
    events.MaintenanceStarted(cause="clock", name="cooling"),
    events.MaintenanceEnded(cause="cmd:c16", name="cooling", by="ada", cancelled=True),
    events.RolloutStarted(
        cause="cmd:c17",
        name="driver-580",
        nodes=("sim-1", "sim-2"),
        budget_gpus=16,
        nodes_max=2,
        want=("nvidia.com/cuda.driver.major=580",),
        deadline_ns=3600 * 10**9,
        stop_long=True,
        by="ada",
        reason="CVE",
    ),
    events.RolloutAdvanced(cause="clock", name="driver-580", node="sim-1", step="draining"),
    events.RolloutPaused(cause="cmd:c18", name="driver-580", by="ada", reason="lunch"),
    events.RolloutResumed(cause="cmd:c19", name="driver-580", by="ada"),
    events.RolloutEnded(cause="cmd:c20", name="driver-580", by="ada", cancelled=True),
    events.IdlePoliciesSet(cause="cmd:c30", scope="project:llm", policies=(POLICY,), by="ada"),
    events.JobIdle(
        cause="clock",
        job="812",
        attempt=1,
        scope="global",
        rule="utilization",
        action="stop",
        mode="always",
        since_ns=AT_NS - 600 * 10**9,
        reclaim_at_ns=AT_NS + 300 * 10**9,
        evidence=EVIDENCE,
    ),
    events.JobActive(cause="clock", job="812", attempt=1, rule="utilization", reason="active", evidence=EVIDENCE[:1]),
    events.JobExtended(cause="cmd:c31", job="812", attempt=1, until_ns=AT_NS + 3600 * 10**9, count=1, by="ada"),
    events.LeaseShrunk(
        cause="clock", job="812", attempt=1, until_ns=AT_NS + 900 * 10**9, scope="user:ada", rule="utilization"
    ),
    events.ReclaimRequested(
        cause="clock",
        job="812",
        attempt=1,
        scope="global",
        rule="interaction",
        action="requeue",
        on_demand=True,
        since_ns=AT_NS - 900 * 10**9,
        evidence=EVIDENCE,
    ),
    events.ReclaimSimulated(
        cause="clock",
        job="812",
        attempt=1,
        scope="global",
        rule="lifetime",
        action="stop",
        since_ns=AT_NS - 900 * 10**9,
        evidence=EVIDENCE,
    ),
    events.TelemetryCommandRejected(
        cause="cmd:c32",
        command="c32",
        code="unknown_job",
        message="there is no job 813",
        digest="00" * 32,
        verb="ExtendJob",
        about="813",
    ),
    events.JobPlaced(
        cause="90.0",
        job="812",
        attempt=1,
        parts=(PART,),
        master_address="10.0.0.7",
        master_port=29500,
        score={"best_fit": 7},
        guest_of="811",
    ),
    events.JobUnplaceable(
        cause="90.1",
        job="812",
        attempt=1,
        reasons={"cordoned": 1, "maintenance": 1, "free_gpus": 37},
        nodes=40,
        windows=("cooling",),
        level="rack",
        best=1,
        fitting=1,
        gpu_milli_free=2000,
        gpu_milli_total=320000,
        near=(
            events.NearMiss(
                node="sim-1", job="700", at_ns=10, basis="limits", gpu_milli=2000, cpu_milli=1000, memory_mib=1024
            ),
        ),
    ),
    events.OfferReturned(cause="91.0", job="812", attempt=1),
    events.PreemptionStarted(cause="95.0", job="700", attempt=1, beneficiary="812", rule="over_slice"),
    events.PreemptionDeclined(cause="95.0", job="812", attempt=1, reasons={"free_gpus": 1}),
    events.ReservationMade(
        cause="95.0", job="812", attempt=1, nodes=("sim-1",), start_ns=10, basis="limits", waits_for=("700",)
    ),
    events.ReservationEnded(cause="96.0", job="812", attempt=1),
    events.RankStarted(cause="report:sim-1:2", job="812", attempt=1, rank=1, image=IMAGE),
    events.RunStarted(cause="report:sim-1:3", job="812", attempt=1, image=IMAGE, began_ns=AT_NS),
    events.AppReady(cause="report:sim-1:4", job="812", attempt=1, ready_ns=AT_NS),
    events.CheckpointSaved(cause="report:sim-1:4", job="812", attempt=1, note="step=1200", noticed=True),
    events.RankEnded(
        cause="report:sim-1:4",
        job="812",
        attempt=1,
        rank=1,
        outcome="exited",
        exit_code=1,
        signal=15,
        message="rank 1 failed",
        fault="node",
        blames=0,
        ran_ns=61 * 10**9,
        released=True,
    ),
    events.RunEnded(
        cause="report:sim-1:5",
        job="812",
        attempt=1,
        outcome="stopped",
        exit_code=143,
        signal=15,
        rank=1,
        message="terminated",
        fault="job",
        blames=0,
        ran_ns=61 * 10**9,
        drained=True,
        preempted=True,
        gpu_fault="xid79",
        noticed_ns=AT_NS,
        saved_ns=AT_NS + 10**9,
        released=("sim-1",),
        alike=("sim-1", "sim-2"),
        ended_ns=AT_NS + 2 * 10**9,
    ),
    events.AllocationReleased(cause="report:sim-1:6", job="812", attempt=1, node="sim-1"),
    events.ReportRejected(cause="report:sim-1:0", node="sim-1", code="undecodable", message="not JSON", digest=DIGEST),
    events.NodeCommandRejected(
        cause="cmd:c10",
        command="c10",
        code="unknown_node",
        message="no node x",
        digest=DIGEST,
        verb="DrainNode",
        about="x",
    ),
    events.QueueClockStepped(cause="clock", step_ns=3_600_000_000_000, lag_ns=3_599_990_000_000),
    events.PlacerClockStepped(cause="clock", step_ns=-3_600_000_000_000, lag_ns=-3_599_990_000_000),
    events.TelemetryClockStepped(cause="clock", step_ns=7_500_000_000, lag_ns=7_499_900_000),
    events.PrincipalAdmitted(cause="cmd:c40", principal="p7f3k", kind="person", by="p1root"),
    events.PrincipalSuspended(cause="cmd:c41", principal="p7f3k", by="p1root", forgotten=True),
    events.RoleGranted(
        cause="cmd:c42", subject="p7f3k", role="member", scope="queue:research/llm", source="person", by="p1root"
    ),
    events.RoleRevoked(
        cause="cmd:c43", subject="group:vision", role="viewer", scope="pool:a100", source="queue-file", by="p1root"
    ),
    events.RolesApplied(
        cause="cmd:c44", source="queue-file", scope="queue:research", configured=2, removed=1, unchanged=3, by="p1root"
    ),
    events.GroupSynced(
        cause="cmd:c45", group="group:vision", source="scim", added=("p7f3k",), removed=("p8g4m",), by="p1root"
    ),
    events.TokenIssued(
        cause="cmd:c46",
        token="t9xw2",
        principal="p7f3k",
        kind="person",
        expires_ns=AT_NS,
        verbs=("job:submit", "job:read"),
        scopes=("queue:research/llm",),
        by="p7f3k",
    ),
    events.TokenRevoked(cause="cmd:c47", token="t9xw2", reason="revoked", by="p7f3k"),
    events.SessionOpened(cause="cmd:c48", session="s5qd1", principal="p7f3k", provider="corp", expires_ns=AT_NS),
    events.SessionEnded(cause="cmd:c49", session="s5qd1", reason="provider", by="p7f3k"),
    events.AccessCommandRejected(
        cause="cmd:c50",
        command="c50",
        code="denied",
        message="nobody grants more than they hold",
        digest=DIGEST,
        verb="SuspendPrincipal",
        about="p7f3k",
    ),
    events.LevelRaised(cause="cmd:c51", level=2, by="p1root"),
    events.AccessClockStepped(cause="clock", step_ns=-7_500_000_000, lag_ns=-7_499_900_000),
    events.StorageClassSet(
        cause="cmd:c60",
        name="scratch",
        backend="ext4-image",
        volume_bytes_max=2**40,
        user_bytes_max=2**38,
        by="p1root",
    ),
    events.StorageClassRemoved(cause="cmd:c61", name="scratch", by="p1root"),
    events.VolumeCreated(
        cause="cmd:c62",
        volume="data",
        owner="queue:research/llm",
        storage_class="shared",
        quota_bytes=2**39,
        by="p7f3k",
        uid=2_000_000_000,
    ),
    events.VolumeResized(cause="cmd:c63", volume="data", quota_bytes=2**40, by="p7f3k"),
    events.VolumeDeleted(cause="cmd:c64", volume="data", by="p7f3k"),
    events.DatasetAdded(
        cause="cmd:c65",
        dataset="imagenet@2012.1",
        owner="project:vision",
        digest=f"sha256:{DIGEST}",
        size_bytes=155_000_000_000,
        files=1_281_167,
        by="p7f3k",
    ),
    events.DatasetRetired(cause="cmd:c66", dataset="imagenet@2012.1", by="p7f3k"),
    events.StorageCommandRejected(
        cause="cmd:c67",
        command="c67",
        code="conflict",
        message="the name data is taken",
        digest=DIGEST,
        verb="CreateVolume",
        about="data",
    ),
    events.StorageClockStepped(cause="clock", step_ns=-7_500_000_000, lag_ns=-7_499_900_000),
]
ROLE_ENTRY = commands.RoleEntry(
    subject="p7f3k", role="member", scope="job:812", queue="research/llm", pool="a100", project="llm", owner="p8g4m"
)

COMMANDS: list[commands.CommandBase] = [
    commands.SubmitJob(
        id="c1",
        user="ada",
        authority=Authority(principal="p7f3k", via="token:t9x2m", rights=4711, act_as="p1c8d"),
        name="train-llm",
        queue="research/vision",
        request=REQUEST,
        spec=SPEC,
        project="llm",
        kind="service",
        priority=70,
        array=(0, 7),
        retries=3,
        total_ns=7 * 86400 * 10**9,
        grace_ns=120 * 10**9,
        start_at_ns=AT_NS,
        deadline_ns=AT_NS + 86400 * 10**9,
        slice_ns=3600 * 10**9,
        after=(events.Dependency(job="811", state="ended"),),
        array_limit=2,
        on_partition=OnPartition(stop_after_ns=30 * 10**9, replace_after_ns=-1),
        checkpoint=CHECKPOINT,
        gang="leader",
        held=True,
        key="5d41402abc4b2a76",
        digest="7d793037a0760186",
    ),
    commands.CancelJob(id="c2", user="ada", job="812", save=True),
    commands.RequeueJob(id="c3", user="ada", job="812"),
    commands.SignalJob(id="c3", user="ada", job="812", signal="SIGUSR1"),
    commands.HoldJob(id="c3", user="ada", job="812"),
    commands.ReleaseJob(id="c4", user="ada", job="812"),
    commands.MoveJob(id="c4", user="ada", job="812", queue="research/speech"),
    commands.UpdateJob(
        id="c4",
        user="ada",
        job="812",
        name="train-2",
        priority=70,
        total_ns=7_200_000_000_000,
        labels={"a": "b"},
        extends=True,
        unchanged_since=4711,
    ),
    commands.HoldQueue(id="c4", user="ada", path="research/vision", reason="storage moves"),
    commands.DrainQueue(id="c4", user="ada", path="research/vision", reason="closes on Friday"),
    commands.ApplyService(
        id="c4", user="ada", service="chat", queue="research/vision", template=REPLICA_JOB, rules=SERVICE_RULES
    ),
    commands.ScaleService(id="c4", user="ada", service="chat", replicas_min=1, replicas_max=3),
    commands.ReportServiceLoad(id="c4", user="ada", service="chat", proxy="p7f3k", in_flight=12),
    commands.StopService(id="c4", user="ada", service="chat"),
    commands.IssueServiceKey(
        id="c4",
        user="ada",
        service="chat",
        key="a1b2c3d4e5",
        name="web shop",
        per_minute=600,
        in_flight=8,
        expires_ns=AT_NS,
    ),
    commands.RevokeServiceKey(id="c4", user="ada", service="chat", key="a1b2c3d4e5"),
    commands.SetPrice(id="c4", user="ada", model="*", micro=2_490_000, currency="EUR", from_ns=AT_NS),
    commands.ReleaseQueue(id="c4", user="ada", path="research/vision"),
    commands.ApplyQueues(
        id="c5",
        user="ada",
        unchanged_since=4711,
        pools=(settings.PoolEntry(pool="a100", settings=POOL),),
        queues=(settings.QueueEntry(path="research/vision", settings=QUEUE),),
        remove=(settings.QueueRemoval(path="research/old", move_to="research/vision"),),
        prune=True,
        reclaim=True,
    ),
    commands.CordonNode(id="c6", user="ada", node="sim-1", reason="new fan"),
    commands.UncordonNode(id="c7", user="ada", node="sim-1"),
    commands.DrainNode(id="c8", user="ada", node="sim-1", reason="new driver", deadline_ns=10**12),
    commands.TaintNode(id="c9", user="ada", node="sim-1", taint="team=a:NoSchedule", reason="theirs"),
    commands.UntaintNode(id="c10", user="ada", node="sim-1", taint="team"),
    commands.QuarantineNode(id="c11", user="ada", node="sim-1", reason="smells"),
    commands.UnquarantineNode(id="c12", user="ada", node="sim-1"),
    commands.RestoreGpu(id="c13", user="ada", node="sim-1", gpu="GPU-sim-1-0"),
    commands.DeclareNodeDead(id="c13", user="ada", node="sim-1", reason="its plug is pulled"),
    commands.RemoveNode(id="c13", user="ada", node="sim-1", reason="sold"),
    commands.ResetBreaker(id="c14", user="ada"),
    commands.ScheduleMaintenance(
        id="c15",
        user="ada",
        name="cooling",
        starts_ns=AT_NS,
        ends_ns=AT_NS + 3600 * 10**9,
        nodes=("sim-1",),
        selector=("row=2",),
        notice_ns=1800 * 10**9,
        reason="new pump",
    ),
    commands.CancelMaintenance(id="c16", user="ada", name="cooling"),
    commands.StartRollout(
        id="c17",
        user="ada",
        name="driver-580",
        budget_gpus=16,
        nodes=("sim-1",),
        selector=("row=2",),
        every=True,
        nodes_max=2,
        want=("nvidia.com/cuda.driver.major=580",),
        deadline_ns=3600 * 10**9,
        stop_long=True,
        reason="CVE",
    ),
    commands.PauseRollout(id="c18", user="ada", name="driver-580", reason="lunch"),
    commands.ResumeRollout(id="c19", user="ada", name="driver-580"),
    commands.CancelRollout(id="c20", user="ada", name="driver-580"),
    commands.FinishRolloutNode(id="c21", user="ada", name="driver-580", node="sim-1"),
    commands.SetIdlePolicies(id="c30", user="ada", scope="project:llm", policies=(POLICY,)),
    commands.ApplyIdlePolicies(id="c32", user="ada", scopes={"project:llm": (POLICY,), "user:bob": ()}),
    commands.ExtendJob(id="c31", user="ada", job="812", for_ns=3600 * 10**9),
    commands.AdmitPrincipal(id="c40", user="p1root", principal="ci", kind="service", first=True),
    commands.RaiseLevel(id="c51", user="p1root", level=2),
    commands.SuspendPrincipal(id="c41", user="p1root", principal="p7f3k", forget=True),
    commands.GrantRole(id="c42", user="p8g4m", grant=ROLE_ENTRY),
    commands.RevokeRole(id="c43", user="p8g4m", grant=ROLE_ENTRY),
    commands.ApplyRoles(id="c44", user="p1root", source="queue-file", scope="queue:research", grants=(ROLE_ENTRY,)),
    commands.SyncGroup(
        id="c45", user="p1root", group="group:vision", source="scim", added=("p7f3k",), removed=("p8g4m",)
    ),
    commands.IssueToken(
        id="c46",
        user="p1root",
        token="t9xw2",
        principal="ci",
        kind="service",
        expires_ns=AT_NS,
        verbs=("job:submit",),
        scopes=("queue:research/llm",),
    ),
    commands.RevokeToken(id="c47", user="p1root", token="t9xw2"),
    commands.OpenSession(
        id="c48", user="p1root", session="s5qd1", principal="p7f3k", provider="corp", expires_ns=AT_NS
    ),
    commands.EndSession(id="c49", user="p7f3k", session="s5qd1", reason="provider"),
    commands.SetStorageClass(
        id="c60", user="p1root", name="scratch", backend="ext4-image", volume_bytes_max=2**40, user_bytes_max=2**38
    ),
    commands.RemoveStorageClass(id="c61", user="p1root", name="scratch"),
    commands.CreateVolume(
        id="c62", user="p7f3k", volume="data", owner="queue:research/llm", storage_class="shared", quota_bytes=2**39
    ),
    commands.ResizeVolume(id="c63", user="p7f3k", volume="data", quota_bytes=2**40),
    commands.DeleteVolume(id="c64", user="p7f3k", volume="data"),
    commands.AddDataset(
        id="c65",
        user="p7f3k",
        dataset="imagenet@2012.1",
        owner="project:vision",
        digest=f"sha256:{DIGEST}",
        size_bytes=155_000_000_000,
        files=1_281_167,
    ),
    commands.RetireDataset(id="c66", user="p7f3k", dataset="imagenet@2012.1"),
]

REPORTS: list[reports.ReportBase] = [
    reports.InventorySeen(
        n=1, boot_id="b1", inventory=INVENTORY, plan=815, failure="3g.40gb at 0: Insufficient Resources"
    ),
    reports.StartSeen(n=2, job="812", attempt=1, rank=1, image=IMAGE, at_ns=AT_NS, boot_ns=99),
    reports.AppSeen(n=3, job="812", attempt=1, rank=0, at_ns=AT_NS),
    reports.CheckpointSeen(n=3, job="812", attempt=1, rank=1, at_ns=AT_NS, note="step=1200", noticed=True),
    reports.ExitSeen(
        n=3,
        job="812",
        attempt=1,
        rank=1,
        outcome="exited",
        exit_code=1,
        signal=9,
        message="killed",
        ran_ns=61 * 10**9,
        fault="job",
        blames=0,
        clean=True,
        at_ns=AT_NS,
    ),
    reports.CleanSeen(n=4, job="812", attempt=1, rank=1),
    reports.HealthSeen(
        n=5, gpu="GPU-sim-1-0", code="xid79", evidence="GPU has fallen off the bus", over=True, at_ns=AT_NS
    ),
    reports.HealthSeen(n=6, gpu="", code="disk_full", over=True, evidence="41 % left", at_ns=AT_NS),
]

BEAT = reports.Heartbeat(
    node="sim-1", incarnation="i1", desired=812, reported=4, at=99, wall_ns=1_800_000_000_000_000_000
)
CONFIRM = reports.ReportAck(node="sim-1", incarnation="i1", through=4, beat=99, wall_ns=AT_NS, desired=7, removed="i0")
PIECE = reports.OutputPiece(
    job="812_3",
    attempt=2,
    rank=1,
    stream="stderr",
    offset=4096,
    data=b"\x00\xffloss 0.1\n",
    at_ns=AT_NS,
    last=True,
    gone="this node keeps output of the newest 200 runs, or less where a job's output.keep is lower",
)
WANTED = reports.ReadOutput(job="812", attempt=1, rank=1, stream="stdout", offset=4096, bytes_max=1024)

SAMPLES = samples.SampleBatch(
    node="sim-1",
    incarnation="i1",
    n=17,
    at_ns=AT_NS,
    gpus=[
        samples.GpuSample(
            uuid="MIG-sim-1-0-1",
            parent="GPU-sim-1-0",
            utilization_pct=97,
            memory_used_mib=70000,
            power_mw=400000,
            temperature_c=61,
            sm_clock_mhz=1410,
            run="812.1",
            memory_free_mib=10920,
            memory_reserved_mib=639,
            memory_busy_pct=41,
            memory_clock_mhz=1593,
            memory_temperature_c=66,
            encoder_pct=0,
            decoder_pct=0,
            energy_mj=88_000_000,
            pcie_tx_bytes_s=1 << 20,
            pcie_rx_bytes_s=3 << 20,
            nvlink_tx_kib=5 << 30,
            nvlink_rx_kib=6 << 30,
            ecc_correctable=3,
            ecc_uncorrectable=1,
            slowdowns=64,
            xid=63,
            xids=2,
            engine_permille=985,
            sm_permille=903,
            sm_occupancy_permille=412,
            tensor_permille=377,
            dram_permille=301,
            fp64_permille=0,
            fp32_permille=55,
            fp16_permille=12,
        )
    ],
    uses=[samples.RunUse(uuid="GPU-sim-1-0", run="812.1", rank=1, memory_mib=69000, utilization_pct=96)],
    resources=[
        samples.RunResources(
            run="812.1",
            rank=1,
            cpu_ms=91_250,
            memory_mib=3400,
            disk_read_bytes=1 << 32,
            disk_written_bytes=4096,
            network_rx_bytes=77,
            network_tx_bytes=88,
            terminal_ns=AT_NS,
        )
    ],
    simulated=True,
)

DESIRED = desired.Desired(
    node="sim-1",
    incarnation="i1",
    boot_id="b1",
    sequence=812,
    runs=[
        desired.RunOrder(
            job="812",
            attempt=1,
            rank=1,
            epoch=811,
            gpus=("GPU-sim-1-0",),
            cpu_milli=32000,
            memory_mib=262144,
            shm_mib=65536,
            gpu_milli=429,
            gpu_memory_mib=20480,
            instances=("MIG-sim-1-0-3",),
            nodes=("n6", "n7"),
            hostlist="10.0.0.[7-8]",
            nodelist="n[6-7]",
            slots=(8, 8),
            cpus="0-15,32-47",
            nics=("mlx5_0",),
            tasks=2,
            hosts=("10.0.0.7", "10.0.0.8"),
            gpus_per_node=8,
            master_address="10.0.0.7",
            master_port=29500,
            grace_ns=120 * 10**9,
            stop_after_ns=30 * 10**9,
            ran_ns=61 * 10**9,
            user="ada",
            queue="research/vision",
            name="train-llm",
            spec=SPEC,
            spec_hash=DIGEST,
            checkpoint=CHECKPOINT,
            restarted="preempted",
            signals=((1, "SIGUSR1"),),
            stop="cancelled",
            notice_ns=120 * 10**9,
        )
    ],
    drained=desired.Drained(cause="cmd:c1", setter="rollout", reason="rollout driver-580"),
    layouts=[
        desired.LayoutOrder(
            gpu="GPU-sim-1-0",
            plan=815,
            mode="on",
            destroy=(MigInstance(uuid="MIG-sim-1-0-1", profile="2g.20gb", start=0),),
            create=(MigPlace(profile="3g.40gb", start=0),),
        )
    ],
)

GANG_CALLS = [
    rank_rpc.RankReady(job="812", attempt=1, epoch=811, rank=3),
    rank_rpc.DaemonWanted(job="812", attempt=1, epoch=811, rank=2, id=4711, command="orted -mca ess env"),
    rank_rpc.DaemonEnded(job="812", attempt=1, epoch=811, rank=3, id=4711, code=1),
]

GANG_HEARD = rank_rpc.GangReply(speaker="n6", call=msgspec.Raw(rank_rpc.encode_gang(GANG_CALLS[0])))
GANG_ANSWER = rank_rpc.GangAnswer(go=True, refusal="it has ended")

COMMIT = Commit(
    v=VERSION,
    writer="placer",
    n=1,
    basis=811,
    at_ns=AT_NS,
    cursors={"report.sim-1": 4, "CMD": 812},
    prev=GENESIS,
    events=[events.RunStarted(cause="report:sim-1:2", job="812", attempt=1)],
)

ASKS = [
    explainer.AskWhy(job="812", at=4711),
    explainer.AskDryRun(commands=(next(each for each in COMMANDS if isinstance(each, commands.SubmitJob)),)),
    explainer.AskDefrag(pool="a100", at=4711, now_ns=1_790_000_000_000_000_000),
    explainer.AskPacking(pool="a100", at=4711, away=("n7",)),
    explainer.AskQueues(at=4711),
    explainer.AskQueueChange(
        command=next(each for each in COMMANDS if isinstance(each, commands.ApplyQueues)), at=4711
    ),
]
EXPLANATION = explainer.Explanation(
    reason="maximum",
    limit=explainer.Limit(queue="research", resource="gpu", held=6000, needed=4000, ceiling=8000, holder="9"),
    no_place="pool_full",
    changes=(
        explainer.PossibleChange(
            kind="wait",
            queue="research",
            gpu_milli=2000,
            short=(explainer.MissingAmount(queue="research", resource="gpu", amount=2000, user="ada", lent=True),),
            raised=(
                explainer.RaisedLimit(queue="research", resource="gpu", use=10_000, maximum=10_000, borrowing=2000),
            ),
            before=1,
        ),
    ),
    ahead=1,
    first_ahead=("811",),
)
MOVE = DefragMove(job="3", attempt=1, gpu_milli=2000, sources=("n1",), targets=("n4",), cost_gpu_s=7440)
DEFRAG_PLAN = DefragPlan(
    job="812",
    attempt=1,
    gpu_milli=8000,
    moves=(MOVE,),
    nodes=("n1",),
    gain_gpu_s=7200,
    cost_gpu_s=7440,
    why_not="costs_more",
    message="the moves would cost more than it gains",
)
PACKING = PoolPacking(
    pool="a100",
    policy="spread",
    nodes=4,
    gpus=32,
    gpu_milli_free=12_000,
    gpu_milli_aside=8_000,
    gpu_milli_unusable=1_500,
    requests_seen=1204,
    largest_on_one_node=OneNode(node="n1", gpus=8),
    largest_gangs={
        "pool": (
            DomainCapacity(domain="a100", nodes=1, gpus_per_node=8),
            DomainCapacity(domain="a100", nodes=2, gpus_per_node=4),
        )
    },
    sequence=40,
    at="2026-11-02T09:00:00.000Z",
)
ANSWER = explainer.ExplainerAnswer(
    defrag=Defrag(pool="a100", on=True, plans=(DEFRAG_PLAN,), sequence=40),
    packing=PACKING,
    queues=(explainer.QueueStanding(queue="research", kept={"gpu": 2000}, past_use={"gpu": 3500}, spent=151_200_000),),
    change=explainer.QueueChangeOutcome(
        code="conflict",
        message="queues.a: it has jobs",
        configured=1,
        removed=2,
        unchanged=3,
        yields=(explainer.JobOfChange(job="7", attempt=2, gpu_milli=8000),),
        withdrawn=(explainer.JobOfChange(job="8", attempt=1, gpu_milli=1000),),
        offered=(explainer.JobOfChange(job="9", attempt=1, gpu_milli=1000),),
    ),
    sequence=4711,
    why=EXPLANATION,
    outcomes=(
        explainer.DryRunOutcome(
            code="invalid",
            field="queue",
            message="expected a queue",
            pool="a100",
            quota=(
                explainer.DryRunQuota(
                    queue="research", resource="gpu", used=1, after=2, guaranteed=3, maximum=4, user="ada"
                ),
            ),
            borrows={"gpu": 1000},
            waits=EXPLANATION,
            displaces=(events.Victim(job="7", attempt=1, rule="over_guarantee", gpu_s=60),),
            estimate=explainer.Estimate(unknown="claimed", start_ns=AT_NS, ahead=1, more=True, unlimited=2),
        ),
    ),
    error="busy",
    message="ask again",
)
