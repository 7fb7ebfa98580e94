"""The contracts between Fairlead's parts: what crosses a wire, and nothing that decides.

Start at `events/` (what happened), `wire/commands.py` (what is asked for), `wire/reports.py` (what an
agent saw), `wire/desired.py` (what a node should run) and `wire/commit.py` (the envelope of the log).
`wire/lifecycle.py` holds the legal moves of a job. Imports msgspec only.
"""
