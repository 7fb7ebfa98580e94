"""`doctor` on a node: one line per check, and the command that mends it."""

from pathlib import Path

import typer

from fairlead import render
from fairlead.render import Column, Format
from fairlead_agent.doctor import checks, collect
from fairlead_agent.setup import layout


def is_node(root: Path) -> bool:
    """Return True if `agent install` has run under this root."""
    return (root / layout.ENV_FILE.lstrip("/")).exists()


def look(root: Path, output: Format) -> None:
    """Print what there is to say of the node; exit code 1 when anything fails."""
    found = checks.judge(collect.read(root))
    if output in (Format.json, Format.yaml):
        render.write(render.document([check._asdict() for check in found], output))
    elif output is Format.names:
        render.write("".join(f"{check.name}\n" for check in found if check.level == "FAIL"))
    else:
        columns = [Column(head, lambda row: row) for head in ("WHAT", "", "FOUND", "MEND")]
        render.write(render.table([[c.name, c.level, c.finding, c.mend or " "] for c in found], columns))
    if any(check.level == "FAIL" for check in found):
        raise typer.Exit(1)
