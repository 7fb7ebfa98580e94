"""Fragmentation-aware packing: the place where a job makes the least capacity useless for the work that is to come.

PROBLEM. Sixteen GPUs may be free, and no job of eight can start, because two are free on each of eight nodes. A GPU may
be free on a node whose CPU or memory is used up. A fifth of a GPU may be left where every share that arrives needs a
quarter. A placer that looks at one job alone sees no difference between two nodes on which the job fits. Naively, one
would take the fullest node (policy `most_allocated`). That keeps whole nodes free. It also fills GPUs of a rare model
with jobs that any GPU suits, and leaves remainders that nothing fits. Instead, each free part of a node has a worth, by
the work that this pool has seen, and a job goes where it destroys the least worth.

MODEL. The package knows no jobs, queues or events. It knows these:

    row      nodes of a pool that are alike: build, free GPUs, remainders of shared GPUs, leading bits of CPU and memory
    state    what a node has left, in these terms; the state after one placement is the state before another one
    choice   what a request could take on a node of a row; a share has one for each different remainder
    kind     a set of GPU models and a number of GPUs on one node, as jobs request them (`scarcity.py`)

    arrivals of the pool, weighted,     rows of the pool ─────────────> choices of a request's size: state before,
    halved with time (policy.py)        (rows.py)                       state after (moves.py)
           │        │                        │ states, numbered                │
           │        │ learn                  v (Lattice in rows.py)            │
           │        └─────> policy ───> fixed loss of each state,              │
           │                            room in it for each kind               │
           │ price                           │                                 v
           └──────────────────────────> cost of each state ────────────> cost of each choice: after - before
                                        (StateLosses in moves.py)              │
                                                                               v
                                        the cheapest choice of each row, for each kind of request (RowCosts)
                                                                               │
                                                                               v
                                        rows by cost, then tightness ──> node, GPUs (cluster/placement/node_choice.py)
                                        (costs.py)

COST. The default policy (`fragmentation.py`) sums up three losses, in millionths of a GPU:

    remainders   GPUs in part used, less the worth of what they have left, times 4 (`REST_WEIGHT`): such a part is lost
                 for certain, the other losses are expected ones. Sizes of shares get prices at which the best filling
                 of a whole GPU is worth a GPU, and at which as many shares are bought as will come (a cutting-stock
                 problem). The worth of a remainder is its best filling at these prices.
    stranded     useful GPUs for which the node's CPU, or memory, will not suffice: the expected shortfall of a newsvendor,
                 if the need is normally distributed around the need per GPU that was seen.
    scarce       the room for each kind that a choice gives up, times its price. The price is the chance that all such
                 room will be wanted before the pool is full. It keeps whole nodes and rare models for jobs that need
                 them, in proportion to their arrival.

A choice costs the state after it less the state before it, and more on a node with a taint that prefers other work.
Other policies (`policies.py`) are other costs of a state. They use the same port (`policy.py`) and the same mechanism.

EXACT. Costs are integers, so every machine computes the same. Every row is compared, and a unit that fits somewhere
finds a place, because the nodes themselves decide at last (`seat`). Equal costs are decided by tightness, links and name.
Costs that are kept equal those that are computed again from nothing (tests/placer/packing/test_costs.py).

HEURISTIC. Free CPU and memory count by six leading bits (three where no GPU is free). A job is placed without a look at
the next one. Kinds are priced as if they were independent, and demand as if it were normal, with 40 % more uncertainty
than chance (`UNSURE_PERCENT`). The future is expected to be like the past. Several GPUs of a request take the fullest
that fit. Nodes of a gang are chosen by domain first. Costs are derived and in no snapshot: after a restart, another one
of several good nodes may be chosen (ADR 0013). docs/reference/packing.md has the result, on a published trace and on
mixes of it that were drawn by rule.

TUNING. Nine constants of `costs.py` say how often worth is computed and how the cheapest row is found. Choices depend on
the first three, because prices lag; the others change time and memory only. Measured on the openb trace (10,850 pods,
seed 42): prices at every arrival take 1.7 times the CPU and allocate the same share of the GPUs; learning every 2,048
arrivals, or prices every 437, lose 0.03 to 0.04 points of it.

    LEARNED_EVERY 256      The work and the free GPUs are compared with those that were learned, after 1, 2, 4 … arrivals,
                           then every 256. A new pool learns from its first job. All states are computed again only if
                           the difference is an eighth.
    PRICED_EVERY 25,       Prices are computed after 25 arrivals and one more for each 32 nodes (every 62 for 1,213 nodes):
    NODES_PER_ARRIVAL 32   in a large pool a job changes them less, and they take longer. They are adopted only if one of
                           them has moved by a tenth of a GPU's worth (`MOVED`), because that voids every cost of a row.
    FEW 12                 Up to 12 new states are computed one by one, more of them as columns: a column has a fixed cost
                           that only many states repay.
    LINES_MAX 4096,        Kinds of requests whose costs are kept, and the product of kinds and rows: with two numbers of
    CELLS_MAX 2^22         8 bytes for each pair, 64 MiB. Beyond it, all are dropped and computed when requested.
    SOUGHT 24              The cheapest rows are taken one by one, by a minimum over the rows with nodes; most requests fit
                           in the first. After 24 costs without a place, the remaining rows are sorted.
    UNORDERED 8,           Rows are sorted for a request that comes for the ninth time at the same prices, if there are at
    ORDERED_MAX 96         most 96: it then walks a list. With more rows, the walk would pass too many that no node is in.

Start at `costs.py`, then `moves.py` and `rows.py`; `fragmentation.py` and `scarcity.py` have the worth of a state.
"""
