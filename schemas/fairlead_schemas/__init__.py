"""The contracts between Fairlead's parts: what crosses a wire, and nothing that decides.

Start at `events/` (what happened), `commands.py` (what is asked for), `reports.py` (what an
agent saw), `desired.py` (what a node should run) and `commit.py` (the envelope of the log).
`lifecycle.py` holds the legal moves of a job. Imports msgspec only.
"""
