"""`python -m fairlead_agent.hollow --nodes 500 --gpus 8`: plays nodes until a signal.

FAIRLEAD_NATS names the bus, FAIRLEAD_POOL the pool of all these nodes.
"""

import argparse
import os
from pathlib import Path

from fairlead_agent.hollow.fleet import HollowFleet
from fairlead_agent.hollow.shapes import alike, read_shapes
from fairlead_bus.main import run
from fairlead_bus.port import Bus
from fairlead_bus.settings import token
from fairlead_schemas.ids import is_token


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fairlead_agent.hollow", description="Play many nodes on the real bus."
    )
    parser.add_argument("--nodes", type=int, default=500, help="how many nodes (default 500)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs per node (default 8)")
    parser.add_argument(
        "--shapes",
        type=Path,
        help="node list, CSV: sn,cpu_milli,memory_mib,gpu,model; --nodes and --gpus are then not used",
    )
    parser.add_argument("--speed", type=float, default=1.0, help="divides every run time (default 1)")
    parser.add_argument("--prefix", default="hollow", help="names are PREFIX-1 … (default hollow)")
    found = parser.parse_args()
    if found.speed <= 0 or found.nodes < 1 or found.gpus < 0 or not is_token(f"{found.prefix}-{found.nodes}"):
        parser.error("expected a speed above 0, at least one node, and a prefix of a-z 0-9 _ -")
    return found


def main() -> None:
    """Play until a signal."""
    args = arguments()
    shapes = read_shapes(args.shapes) if args.shapes else alike(args.nodes, args.gpus, args.prefix)

    async def build(bus: Bus) -> HollowFleet:
        pool = token(os.environ, "FAIRLEAD_POOL")
        return HollowFleet(bus, [shape._replace(pool=pool) for shape in shapes], speed=args.speed)

    run("hollow", build)


if __name__ == "__main__":
    main()
