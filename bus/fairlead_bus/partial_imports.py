"""Imports of libraries without parts that they load although they continue without them.

Such a part can cost more time and memory than the library itself, in each process.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast


@contextmanager
def without(name: str) -> Generator[None]:
    """Make imports of a module raise ImportError meanwhile, unless it is already imported."""
    modules = cast("dict[str, Any]", sys.modules)
    if name in modules:
        yield
        return
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]
