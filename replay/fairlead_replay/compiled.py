"""Build of the cores in this process: plain Python, or extension modules compiled by mypyc (docs/adr/0021-compiled-cores.md).

A compiled wheel contains both. Python imports the extension module; the source is for tracebacks and for reading.
"""

from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec

#: The module of each core that applies events, by writer of the log.
FOLDS = {"queue": "fairlead_queue.apply.handlers", "placer": "fairlead_placer.apply.handlers"}


def is_compiled(module: str) -> bool:
    """Return True if the module is, or would be, imported as an extension module. Imports its package, not the module."""
    spec = find_spec(module)
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)


def cores_build() -> str:
    """Return how the cores are built, in words for people: "compiled", "plain Python", or which ones are compiled."""
    compiled = [writer for writer, module in FOLDS.items() if is_compiled(module)]
    if len(compiled) == len(FOLDS):
        return "compiled"
    return f"only {', '.join(compiled)} compiled" if compiled else "plain Python"
