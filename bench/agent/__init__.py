"""The agent on one node: starts beside bare ones, many containers, a restart, rest. Start at `rows.py`."""
