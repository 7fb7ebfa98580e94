"""Import of structlog without rich, which it would load to colour tracebacks: a fifth of a service's memory at rest.

A process's main module imports this one before anything else. Tracebacks on a terminal are Python's own then.
"""

from fairlead_bus.partial_imports import without

with without("rich"):
    import structlog

__all__ = ["structlog"]
