"""Addresses of this machine's loopback that belong to one process of tests: others, next to it, listen at others of the 16 million.

For what has a fixed port there, or one that follows from a job's name: a meeting of agents, say.
"""

import os


def hosts(count: int) -> tuple[str, ...]:
    """So many addresses, the same each time."""
    own = f"127.{1 + os.getpid() // 250 % 250}.{os.getpid() % 250}"
    return tuple(f"{own}.{rank + 1}" for rank in range(count))
