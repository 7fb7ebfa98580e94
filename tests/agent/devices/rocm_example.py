"""The example adapter of docs/reference/devices.md, loaded from its file: it is no part of any package here."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).parents[3] / "docs/examples/rocm_devices.py"


@cache
def rocm_example() -> Any:
    """The module."""
    spec = importlib.util.spec_from_file_location("rocm_devices", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rocm_devices"] = module
    spec.loader.exec_module(module)
    return module
