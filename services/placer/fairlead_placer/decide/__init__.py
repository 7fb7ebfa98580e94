"""Decisions of the placer: commands, reports, node rules, and the order of all actions. Start at `decision.py`."""
