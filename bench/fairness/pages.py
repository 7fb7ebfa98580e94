"""`python -m bench.fairness [PART …] [--write]`: play the traces, print the tables of docs/reference/fairness.md.

Parts: philly, shockwave (both by default). With --write the tables are put into the page, between its markers. The
figures are those of virtual time: they are the same on every machine.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.fairness import philly, shockwave
from bench.table import filled

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "fairness.md"
PARTS = ("philly", "shockwave")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def tables(parts: Sequence[str], each: philly.Map) -> Iterator[tuple[str, str, bool]]:
    """(name of the markers, table, whether its aim is reached)."""
    if "shockwave" in parts:
        rows = shockwave.rows(each)
        yield "shockwave", markdown(shockwave.HEAD, [shockwave.cells(row) for row in rows]), shockwave.met(rows)
    for nodes in philly.NODES if "philly" in parts else ():
        rows = philly.rows(nodes, each)
        yield f"philly on {nodes} nodes", markdown(philly.HEAD, [philly.cells(row) for row in rows]), True


def main() -> int:
    """Play and print; 1 when an aim was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="parts to play (default: all)")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/reference/fairness.md")
    arguments = parser.parse_args()
    all_met = True
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, table, met in tables(arguments.parts or PARTS, pool.map):
            print(f"{name}\n\n{table}\n", flush=True)
            all_met &= met
            if arguments.write:
                PAGE.write_text(filled(PAGE.read_text(), name, table))
    return 0 if all_met else 1
