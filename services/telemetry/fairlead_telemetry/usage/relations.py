"""Tables of usage: `gpu_usage`, which people query, and the one with the meter's memory. Pure data."""

from fairlead_telemetry.schema import Column, Relation

GPU_USAGE = Relation(
    "gpu_usage",
    "Who had which GPUs from when until when: one row per node of an attempt. Statements are sums of these.",
    (
        Column("job", "VARCHAR", "job or array element"),
        Column("attempt", "UINTEGER", "attempt"),
        Column("rank", "UINTEGER", "rank of this node within the run, from 0"),
        Column("node", "VARCHAR", "node"),
        Column("model", "VARCHAR", "GPU model: the node's label nvidia.com/gpu.product, else what its GPUs report"),
        Column("user", "VARCHAR", "who submitted"),
        Column("project", "VARCHAR", "as submitted"),
        Column("queue", "VARCHAR", "path of the queue in which it got its place"),
        Column("pool", "VARCHAR", "pool of that queue"),
        Column("charged_milli", "BIGINT", "thousandths of GPUs that it is charged for"),
        Column("held_milli", "BIGINT", "thousandths of GPUs that the node gave"),
        Column("weight", "BIGINT", "what a GPU of the model counts in budgets, in thousandths"),
        Column("begin_ns", "BIGINT", "placed; Unix nanoseconds of the placer's clock, which never steps back"),
        Column("end_ns", "BIGINT", "the run's end, up to which it is charged; empty while it runs"),
        Column("back_ns", "BIGINT", "when the devices were free again; empty while they are not"),
        Column("over_at", "UBIGINT", "log sequence with which the last of it was over; empty before"),
    ),
)
USAGE_METER = Relation(
    "usage_meter",
    "One row: how far gpu_usage has been folded, and what the fold remembers there.",
    (
        Column("sequence", "UBIGINT", "log sequence of the snapshot"),
        Column("state", "JSON", "jobs that have not ended, queues' pools, pools' prices, nodes' models, open rows"),
    ),
)
RELATIONS = (GPU_USAGE, USAGE_METER)


def usage_ddl() -> list[str]:
    """Statements that create what is missing."""
    return [
        f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(f'"{c.name}" {c.type}' for c in table.columns)})"
        for table in RELATIONS
    ]


def usage_help() -> str:
    """Return the part of the text that `fairlead sql --tables` prints about these tables."""
    lines: list[str] = []
    for table in RELATIONS:
        width = max(len(column.name) for column in table.columns)
        kind = max(len(column.type) for column in table.columns)
        lines += [f"{table.name}: {table.about}"]
        lines += [f"  {column.name:<{width}}  {column.type:<{kind}}  {column.about}" for column in table.columns]
        lines += [""]
    return "\n".join(lines)
