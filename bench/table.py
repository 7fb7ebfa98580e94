"""A measured row, and the table of them."""

from typing import NamedTuple


class Row(NamedTuple):
    """Measured figure, its goal, and the best that the same machine could do in the same run.

    `cpu`: the CPU per job by process, or per event, where the row measures one ("" elsewhere).
    """

    what: str
    measured: str
    goal: str
    met: bool
    ceiling: str
    cpu: str = ""


HEAD = ("| what | measured | goal | met | ceiling or baseline of the same run |", "|---|---|---|---|---|")


def markdown(rows: list[Row]) -> str:
    """The table as docs/reference/performance.md shows it."""
    return "\n".join([*HEAD, *map(_line, rows)])


def replaced(page: str, rows: list[Row]) -> str:
    """The page with these rows in place of the earlier ones with the same labels; the others at the end of its first table, in their
    order. Raises ValueError for a label that is there more than once, and for a page without a table.
    """
    lines = page.split("\n")
    for row in rows:
        there = [at for at, line in enumerate(lines) if line.startswith(f"| {row.what} |")]
        if len(there) > 1:
            raise ValueError(f'expected at most one row "{row.what}" on the page, found {len(there)}')
        if there:
            lines[there[0]] = _line(row)
        else:
            lines.insert(_end_of_table(lines), _line(row))
    return "\n".join(lines)


def named_by_build(row: Row, build: str) -> Row:
    """The row, whose label names the build of the cores unless that is plain Python: both builds may be on one page."""
    return row if build == "plain Python" else row._replace(what=f"{row.what}, {build} cores")


def measured_elsewhere(page: str, host: str, rows: list[Row]) -> list[Row]:
    """The rows with their machine, where it is not the one that the page names: figures of two machines do not compare."""
    model, interpreter = host.split(", ")[1:3]
    if f", {model}, {interpreter}, " in page.partition("\nMachine: ")[2].partition("\n")[0]:
        return rows
    return [row._replace(ceiling=f"{row.ceiling}; on {model}, {interpreter}") for row in rows]


def _end_of_table(lines: list[str]) -> int:
    """Index of the line after the first table. Raises ValueError without one."""
    begin = lines.index(HEAD[0])
    return next((at for at in range(begin, len(lines)) if not lines[at].startswith("|")), len(lines))


def _line(row: Row) -> str:
    measured = f"{row.measured}; {row.cpu}" if row.cpu else row.measured
    return f"| {row.what} | {measured} | {row.goal} | {'yes' if row.met else '**no**'} | {row.ceiling} |"


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` (0..1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def filled(page: str, name: str, table: str) -> str:
    """The page with the table between the markers of that name. Raises ValueError where they are missing."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"expected {begin} and {end}")
    return f"{before}{begin}\n{table}\n{end}{after}"
