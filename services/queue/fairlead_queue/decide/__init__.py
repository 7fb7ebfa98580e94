"""Decisions of the queue: commands, time limits, turns, and the review of the order. Start at decision.py; commands are decided in commands.py."""
