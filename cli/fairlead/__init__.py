"""The `fairlead` command, the Python client and the stack that `fairlead up` starts on one machine.

    from fairlead import Client
    client = Client()
    job = client.submit({"command": ["python", "train.py"], "resources": {"nvidia.com/gpu": 1}})

Start at `client/` for the API in Python, at `main.py` for the command, at `stack/local.py` for the
local stack. Nothing here decides anything about jobs: it asks the gateway and prints the answer.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    """Import the client when a program uses it: every `fairlead` command line imports this package, few need HTTP."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fairlead.client import Client

    return Client
