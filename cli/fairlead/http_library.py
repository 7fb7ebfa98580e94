"""httpx without its own command line, which every import of it loads: with click, rich and pygments a third of the time.

`httpx.main` then prints how to install them. Programs that want it import httpx before this module.
"""

from fairlead_bus.partial_imports import without

with without("httpx._main"):
    import httpx

__all__ = ["httpx"]
