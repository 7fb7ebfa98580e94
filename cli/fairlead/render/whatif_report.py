"""Report of a what-if on a terminal: the grade first, then what differs, then single jobs."""

from collections.abc import Iterator
from typing import Any

from fairlead.render import terminal
from fairlead.render.terminal import TableColumn

#: Measures of a queue that the table has; -o json has all.
SHOWN = ("started", "wait_mean", "wait_p95", "gpu_hours", "preemptions")
#: Winners and losers that the table has.
JOBS_SHOWN = 5


def report(words: dict[str, Any]) -> str:
    """Return the text of a study's document (`fairlead_replay.whatif.documents.document`)."""
    return "".join(_parts(words))


def _parts(words: dict[str, Any]) -> Iterator[str]:
    from fairlead_replay.whatif.documents import lengths_line, notes_of

    fidelity = words["fidelity"]
    yield f"grade {words['grade']}: {words['grade_words']}\n"
    for reason in words["because"]:
        yield f"  {terminal.harmless(reason)}\n"
    starts = (
        f"{fidelity['both']} in both, {fidelity['only_real']} only recorded, {fidelity['only_played']} only played"
        if fidelity["both"] is not None
        else "of all jobs, others' included"
    )
    yield terminal.fields(
        [
            ("window", f"{words['from']} to {words['to']}"),
            ("plays", f"{words['seeds']} pairs, users {words['users']}"),
            ("first starts", starts),
            ("differ by", f"{_seconds(fidelity['error_p50_s'])} (median), {_seconds(fidelity['error_p90_s'])} (90 %)"),
            ("lengths", lengths_line(words)),
        ]
    )
    if words["withheld"]:
        yield "\nthe effects are withheld; --even-so shows them\n"
    else:
        yield "\n" + _effects(words)
        yield from _jobs("start later", words["losers"])
        yield from _jobs("start earlier", words["winners"])
    notes = notes_of(words)
    if notes:
        yield "\n" + "".join(f"note: {terminal.harmless(each)}\n" for each in notes)


def _effects(words: dict[str, Any]) -> str:
    from fairlead_replay.whatif.documents import effect_cells

    rows = [
        (f"{each['kind']} {each['name']}", *effect_cells(each))
        for each in words["effects"]
        if each["kind"] == "queue" and each["measure"] in SHOWN
    ]
    heads = ("GROUP", "MEASURE", "CONTROL", "VARIANT", "DIFFERENCE", "VERDICT")
    return terminal.table(rows, [_column(head, head in ("CONTROL", "VARIANT", "DIFFERENCE")) for head in heads])


def _jobs(title: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield f"\n{title}:\n"
    shown = [
        (
            each["id"],
            each["name"],
            each["user"],
            each["queue"],
            _seconds(each["control_wait_s"]),
            _seconds(each["variant_wait_s"]),
            f"{each['of_pairs']} of {each['pairs']}",
        )
        for each in rows[:JOBS_SHOWN]
        if "id" in each
    ]
    heads = ("JOB", "NAME", "USER", "QUEUE", "WAIT", "IN THE VARIANT", "IN PAIRS")
    yield terminal.table(shown, [_column(head, head in ("WAIT", "IN THE VARIANT")) for head in heads])
    for each in rows:
        if "others" in each:
            yield f"and {each['others']} jobs of others, by {_seconds(each['difference_s'])} in all\n"


def _column(head: str, right: bool) -> TableColumn:
    return TableColumn(head, lambda row: str(row), right=right)


def _seconds(value: float | None) -> str:
    from fairlead_replay.whatif.documents import value_words

    return "never" if value is None else value_words(value, "s")
