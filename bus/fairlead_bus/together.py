"""`python -m fairlead_bus.together NAME=PACKAGE …`: several services in one process, such as `queue=fairlead_queue
access=fairlead_access`. Each package has a `service` module with `build`. They share an interpreter and its libraries, which
saves 20 MiB and more for each; they also share a loop and their end, so large clusters run each on its own.
"""

import sys
from importlib import import_module

from fairlead_bus.main import run_together

if __name__ == "__main__":
    run_together(
        {
            name: import_module(f"{package}.service").build
            for name, _, package in (argument.partition("=") for argument in sys.argv[1:])
        }
    )
