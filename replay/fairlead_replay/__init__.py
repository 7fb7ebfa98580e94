"""Uses of the log: fold it to any moment, verify it, compare it with live state, simulate it.

Start at `audit.py` (is this log whole and true?), `fold.py` (what was the state at a sequence?),
`live_comparison.py` (is a live service in the state that the log gives?) and `sim/` (the same cores and shell in
virtual time, under faults that one seed decides).
"""
