"""Hostile tests: faults and abuse against real stacks, by a program. `make hostile` runs them; see `__main__.py`."""
