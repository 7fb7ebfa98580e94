"""Usage and its cost: `gpu_usage`, the tables next to it that its meter keeps, and the view `costs`. Pure data."""

from fairlead_telemetry.schema.relations import Column, Relation

#: Milli-GPU times nanoseconds of one GPU-hour, as fairlead_schemas.queries.telemetry has it.
_GPU_HOUR = 3_600_000_000_000_000
_FOREVER_NS = 2**63 - 1

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
USAGE_CLOCK = Relation(
    "usage_clock",
    "One row: how far gpu_usage has been folded, and the placer's clock there, up to which present runs are charged.",
    (
        Column("sequence", "UBIGINT", "last log sequence that gpu_usage has"),
        Column("at_ns", "BIGINT", "the placer's clock there, Unix nanoseconds"),
    ),
)
PRICES = Relation(
    "prices",
    "Prices that were set in the log (PriceSet), and those of the file that FAIRLEAD_PRICES names, as last read; a file with a mistake changes nothing.",
    (
        Column("model", "VARCHAR", "GPU model as in gpu_usage; *: every model without rows of its own"),
        Column("per_gpu_hour", "DECIMAL(18,6)", "price of an hour of one whole GPU"),
        Column("currency", "VARCHAR", "such as EUR"),
        Column("valid_from", "TIMESTAMP", "from when on it holds, UTC; of a price of the file a midnight"),
        Column("valid_until", "TIMESTAMP", "start of the model's next price; empty: the last one"),
    ),
)
COSTS = Relation(
    "costs",
    "Charged GPU time and its cost: one row per node of an attempt, month and price. Statements are sums of these.",
    (
        Column("month", "VARCHAR", "month of UTC, such as 2026-11"),
        Column("job", "VARCHAR", "job or array element"),
        Column("attempt", "UINTEGER", "attempt"),
        Column("rank", "UINTEGER", "rank of this node within the run, from 0"),
        Column("node", "VARCHAR", "node"),
        Column("user", "VARCHAR", "who submitted"),
        Column("project", "VARCHAR", "as submitted"),
        Column("queue", "VARCHAR", "path of the queue in which it got its place"),
        Column("pool", "VARCHAR", "pool of that queue"),
        Column("model", "VARCHAR", "GPU model"),
        Column("begins_at", "TIMESTAMP", "start of this piece, UTC"),
        Column("ends_at", "TIMESTAMP", "end of this piece; of a present run the placer's clock"),
        Column("charged", "HUGEINT", "milli-GPU times nanoseconds, exact"),
        Column("gpu_hours", "DOUBLE", "the same in GPU-hours"),
        Column(
            "budget_gpu_hours",
            "DOUBLE",
            "what budgets of queues count for it: gpu_hours times the pool's weight of the model",
        ),
        Column(
            "price_model",
            "VARCHAR",
            "model of the price that was used: *, where the model has none of its own; empty: no price",
        ),
        Column("price_from", "TIMESTAMP", "valid_from of that price"),
        Column("per_gpu_hour", "DECIMAL(18,6)", "that price"),
        Column("currency", "VARCHAR", "its currency"),
        Column("cost", "DOUBLE", "gpu_hours times the price, not rounded; empty: no price"),
    ),
    f"""
    WITH stay AS (
      SELECT *, coalesce(end_ns, (SELECT at_ns FROM usage_clock)) AS until_ns FROM gpu_usage WHERE charged_milli > 0
    ), monthly AS (
      SELECT *, unnest(generate_series(date_trunc('month', make_timestamp_ns(begin_ns))::TIMESTAMP,
        make_timestamp_ns(until_ns)::TIMESTAMP, INTERVAL 1 MONTH)) AS month_at FROM stay WHERE until_ns > begin_ns
    ), price AS (
      SELECT model AS price_model, per_gpu_hour, currency, valid_from AS price_from, epoch_ns(valid_from) AS from_ns,
        coalesce(epoch_ns(valid_until), {_FOREVER_NS}) AS to_ns FROM prices
      UNION ALL
      SELECT model, NULL, NULL, NULL, 0, epoch_ns(min(valid_from)) FROM prices GROUP BY model
      UNION ALL
      SELECT NULL, NULL, NULL, NULL, 0, {_FOREVER_NS}
    ), used AS (
      SELECT model, CASE WHEN model IN (SELECT model FROM prices) THEN model
        WHEN '*' IN (SELECT model FROM prices) THEN '*' END AS price_model FROM (SELECT DISTINCT model FROM gpu_usage)
    ), piece AS (
      SELECT monthly.*, price.*, greatest(begin_ns, epoch_ns(month_at), from_ns) AS since_ns,
        least(until_ns, epoch_ns(month_at + INTERVAL 1 MONTH), to_ns) AS to_here_ns
      FROM monthly JOIN used USING (model) JOIN price ON price.price_model IS NOT DISTINCT FROM used.price_model
    ), charged AS (
      SELECT *, charged_milli::HUGEINT * (to_here_ns - since_ns) AS charged FROM piece WHERE to_here_ns > since_ns
    )
    SELECT strftime(month_at, '%Y-%m') AS month, job, attempt, "rank", node, "user", project, queue, pool, model,
      make_timestamp_ns(since_ns)::TIMESTAMP AS begins_at, make_timestamp_ns(to_here_ns)::TIMESTAMP AS ends_at, charged,
      charged / {_GPU_HOUR} AS gpu_hours, charged * weight / ({_GPU_HOUR} * 1000::HUGEINT) AS budget_gpu_hours, CASE WHEN per_gpu_hour IS NOT NULL THEN price_model END AS price_model, price_from,
      per_gpu_hour, currency, charged / {_GPU_HOUR} * per_gpu_hour::DOUBLE AS cost
    FROM charged""",  # noqa: S608 -- numbers of our own
)
