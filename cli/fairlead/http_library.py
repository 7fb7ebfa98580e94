"""httpx without its own command line, which every import of it loads: with click, rich and pygments a third of the time.

httpx continues without these where it cannot import them, so its `_main` is unavailable during the import. `httpx.main`
then prints how to install them. Programs that want it import httpx before this module.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

_COMMAND_LINE = "httpx._main"


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Make imports of a module fail meanwhile, unless it is already imported."""
    modules = cast("dict[str, Any]", sys.modules)
    if name in modules:
        yield
        return
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]


with _without(_COMMAND_LINE):
    import httpx

__all__ = ["httpx"]
