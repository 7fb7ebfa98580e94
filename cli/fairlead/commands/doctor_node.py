"""`doctor` on a node: one line per check, and the command that mends it."""

from pathlib import Path

import typer

from fairlead import render
from fairlead.render import Column, Format
from fairlead_agent.doctor import judging, reading
from fairlead_agent.installing import layout


def is_node(root: Path) -> bool:
    """Whether `agent install` was here."""
    return (root / layout.ENV_FILE.lstrip("/")).exists()


def look(root: Path, output: Format) -> None:
    """Print what there is to say of the node; exit code 1 when anything fails."""
    checks = judging.judge(reading.read(root))
    if output in (Format.json, Format.yaml):
        render.write(render.document([check._asdict() for check in checks], output))
    elif output is Format.names:
        render.write("".join(f"{check.name}\n" for check in checks if check.level == "FAIL"))
    else:
        columns = [Column(head, lambda row: row) for head in ("WHAT", "", "FOUND", "MEND")]
        render.write(render.table([[c.name, c.level, c.finding, c.mend or " "] for c in checks], columns))
    if any(check.level == "FAIL" for check in checks):
        raise typer.Exit(1)
