"""Whole stacks of real processes: what only shows when everything runs together."""
