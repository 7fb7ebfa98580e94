"""A usage statement as telemetry answers it."""

from fairlead_schemas.queries.telemetry import UsageLine, UsageStatement

LINE = UsageLine(
    key="ada",
    model="a100",
    from_ns=0,
    runs=2,
    gpu_hours=1.5,
    charged=5400 * 10**12,
    held=5401 * 10**12,
    weighted=5400 * 10**15,
    per_gpu_hour="2.49",
    currency="EUR",
    amount="3.74",
)
STATEMENT = UsageStatement(
    month="2026-11",
    by="queue",
    sequence=7,
    as_of_ns=1,
    is_final=False,
    lines=[LINE],
    gpu_hours=1.5,
    charged=LINE.charged,
    held=LINE.held,
    totals={"EUR": "3.74"},
    unpriced=[],
)
