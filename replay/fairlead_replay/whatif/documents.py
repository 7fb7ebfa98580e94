"""Words of a study: the document for programs, and sentences for people. `report_page.py` has the HTML page.

A reader who may not see everything gets the rows of jobs that it may see, and of others totals only (`StudyReader`).
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fairlead_replay.whatif.effects import MEASURES, Effect, waits_by_queue
from fairlead_replay.whatif.fidelity import Fidelity, quantile
from fairlead_replay.whatif.study import Study
from fairlead_schemas.units.timestamps import rfc3339

#: Step of the quantiles of a curve.
CURVE_STEP = 0.05
#: Winners and losers that a document names, each.
JOBS_SHOWN_MAX = 20


def _anything(_value: Any) -> bool:
    return True


class StudyReader(NamedTuple):
    """What a reader of a study may see. `WHOLE` sees everything."""

    #: Of a row about a job (`id`, `user`, `queue`, `project`); of a user's name; of a queue's path.
    job: Callable[[dict[str, Any]], bool] = _anything
    user: Callable[[str], bool] = _anything
    queue: Callable[[str], bool] = _anything
    #: Sums over everybody.
    totals: bool = True
    #: Replaces names in a sentence.
    words: Callable[[str], str] = str
    #: Name of a user, of the id that the log has.
    name: Callable[[str], str] = str

    def group(self, kind: str, name: str) -> bool:
        """Return True if the reader may see the measures of a group of jobs."""
        if kind in ("user", "queue"):
            return self.user(name) if kind == "user" else self.queue(name)
        return self.totals


#: Fields of a fidelity that are sums over everybody; None for a reader who may not see those.
FIDELITY_TOTALS = (
    "both",
    "only_real",
    "only_played",
    "real_gpu_h",
    "played_gpu_h",
    "real_preemptions",
    "played_preemptions",
    "ends_both",
    "ends_equal",
    "gpu_difference",
)
#: A reader who has the whole log.
WHOLE = StudyReader()

GRADES = {
    "A": "the control matches the record: waits within 5 %, GPU-hours within 1 %",
    "B": "the control is near the record: waits within 10 %, GPU-hours within 3 %",
    "C": "the control is too far from the record to say what a change would have done",
}


def document(study: Study, *, reader: StudyReader = WHOLE, even_so: bool = False) -> dict[str, Any]:
    """Return a study as plain values, as a reader may see it. Effects are left out where the control's grade is C, unless
    `even_so`."""
    return shown(whole_document(study), reader, even_so=even_so)


def whole_document(study: Study) -> dict[str, Any]:
    """Return all of a study as plain values: every job that moved, and effects whatever the grade. `shown` makes an answer of it."""
    recording, fidelity = study.recording, study.fidelity
    return {
        "grade": fidelity.grade,
        "grade_words": GRADES[fidelity.grade],
        "because": list(fidelity.because),
        "withheld": study.is_withheld,
        "from": rfc3339(recording.start.at_ns) if recording.start.at_ns else "the log's start",
        "to": rfc3339(recording.end_ns),
        "sequences": [recording.first, recording.last],
        "seeds": study.seeds,
        "users": "closed" if study.closed else "open",
        "grid_s": study.grid_ns / 1e9,
        "change": _overlay_words(study),
        "fidelity": fidelity_document(fidelity),
        "lengths": study.lengths._asdict(),
        "submits": study.submits,
        "submits_that_followed_an_end": study.followed,
        "left_out": dict(+study.left_out),
        "untold": dict(recording.unknown),
        "conflicts": dict(study.conflicts),
        "absences": [
            {"service": each.writer, "from": rfc3339(each.from_ns), "to": rfc3339(each.to_ns)}
            for each in recording.absences
        ],
        "effects": [_effect_words(each) for each in study.effects.effects],
        "winners": [each._asdict() for each in study.effects.winners],
        "losers": [each._asdict() for each in study.effects.losers],
        "curves": curves(study),
        "events": {"control": dict(study.control.events), "variant": dict(study.variant.events)},
    }


def shown(whole: dict[str, Any], reader: StudyReader = WHOLE, *, even_so: bool = False) -> dict[str, Any]:
    """Return a whole document as a reader may see it: names that it may not see are left out, and jobs counted."""
    withheld = whole["withheld"] and not even_so
    fidelity, words = whole["fidelity"], reader.words
    return {
        **whole,
        "withheld": withheld,
        "because": [words(each) for each in whole["because"]],
        "fidelity": {
            **fidelity,
            **({} if reader.totals else dict.fromkeys(FIDELITY_TOTALS)),
            "because": [words(each) for each in fidelity["because"]],
            "queues": [each for each in fidelity["queues"] if reader.queue(each["queue"])],
        },
        **({} if reader.totals else {"submits": 0, "submits_that_followed_an_end": 0}),
        "left_out": {words(name): count for name, count in whole["left_out"].items()},
        "conflicts": {words(name): count for name, count in whole["conflicts"].items()},
        "effects": [] if withheld else _effects_for(whole["effects"], reader),
        "winners": [] if withheld else _moved_words(whole["winners"], reader),
        "losers": [] if withheld else _moved_words(whole["losers"], reader),
        "curves": [] if withheld else [each for each in whole["curves"] if reader.queue(each["queue"])],
        "events": {} if withheld or not reader.totals else whole["events"],
    }


def fidelity_document(found: Fidelity) -> dict[str, Any]:
    """Return the comparison of a control with its record as plain values."""
    words = found._asdict()
    words["queues"] = [{**each._asdict(), "difference": each.difference} for each in found.queues]
    words["because"] = list(found.because)
    words["gpu_difference"] = found.gpu_difference
    return words


def curves(study: Study) -> list[dict[str, Any]]:
    """Return the quantiles of each queue's waits in both plays, in steps of `CURVE_STEP`, in seconds."""
    by_queue = [waits_by_queue(study.recording, outcome) for outcome in (study.control, study.variant)]
    parts = [step * CURVE_STEP for step in range(round(1 / CURVE_STEP) + 1)]
    return [
        {
            "queue": queue,
            "control": [quantile(by_queue[0][queue], part) for part in parts],
            "variant": [quantile(by_queue[1][queue], part) for part in parts],
        }
        for queue in sorted(by_queue[0])
    ]


def _overlay_words(study: Study) -> dict[str, Any]:
    overlay = study.overlay
    return {
        "pools": overlay.pools,
        "queues": overlay.queues,
        "nodes_added": [{"like": like, "count": count} for like, count in overlay.added],
        "nodes_removed": list(overlay.removed),
    }


def _effect_words(each: Effect) -> dict[str, Any]:
    return {
        "kind": each.group.kind,
        "name": each.group.name,
        "jobs": each.jobs,
        "measure": each.measure,
        "unit": MEASURES[each.measure][0],
        "control": each.control,
        "variant": each.variant,
        "difference": each.difference,
        "differences": list(each.differences),
        "changed": each.changed,
        "verdict": each.verdict,
    }


def _effects_for(effects: Iterable[dict[str, Any]], reader: StudyReader) -> list[dict[str, Any]]:
    return [
        {**each, "name": reader.name(each["name"])} if each["kind"] == "user" else each
        for each in effects
        if reader.group(each["kind"], each["name"])
    ]


def _moved_words(moved: Iterable[dict[str, Any]], reader: StudyReader) -> list[dict[str, Any]]:
    """Return the first rows of jobs that the reader may see, and one for all that it may not."""
    rows: list[dict[str, Any]] = []
    others, difference_s = 0, 0.0
    for each in moved:
        if not reader.job(each):
            others += 1
            difference_s += each["difference_s"]
        elif len(rows) < JOBS_SHOWN_MAX:
            rows.append({**each, "user": reader.name(each["user"])})
    if others and reader.totals:
        rows.append({"others": others, "difference_s": difference_s})
    return rows


# ---------------------------------------------------------------------------- sentences


def starts_line(fidelity: dict[str, Any]) -> str:
    """Return how near the control is to the record, in one sentence each."""
    if fidelity["both"] is None:
        return (
            f"First starts differ by {_s(fidelity['error_p50_s'])} (median) and {_s(fidelity['error_p90_s'])} (90 %)."
        )
    return (
        f"First starts of {fidelity['both']} jobs differ by {_s(fidelity['error_p50_s'])} (median) and "
        f"{_s(fidelity['error_p90_s'])} (90 %). GPU-hours held: {fidelity['real_gpu_h']:.2f} and "
        f"{fidelity['played_gpu_h']:.2f}; preemptions: {fidelity['real_preemptions']} and {fidelity['played_preemptions']}."
    )


def lengths_line(words: dict[str, Any]) -> str:
    """Return on what the run lengths rest."""
    found = words["lengths"]
    return (
        f"GPU-hours: {found['exact']:.0%} of exact length, {found['kept']:.0%} with kept work, {found['drawn']:.0%} drawn, "
        f"{found['endless']:.0%} up to a limit."
    )


def notes_of(words: dict[str, Any]) -> list[str]:
    """Return what a reader should know of a study in addition to its figures."""
    notes: list[str] = []
    if words["submits"]:
        part = words["submits_that_followed_an_end"] / words["submits"]
        notes.append(
            f"{part:.0%} of the submits followed an end of the same user's within 20 minutes; users were {words['users']}"
        )
    notes += [f"not given: {count} {reason}" for reason, count in sorted(words["left_out"].items())]
    notes += [
        f"the log does not tell what was asked: {count} {name}" for name, count in sorted(words["untold"].items())
    ]
    notes += [f"the record changes it, too: {name}" for name in sorted(words["conflicts"])]
    if words["absences"]:
        notes.append(f"services were away {len(words['absences'])} times in the record, and are so in every play")
    if words["grid_s"]:
        notes.append(
            f"moments are rounded up to {words['grid_s']:g} s: starts come so much later at most, in every play"
        )
    return notes


def _s(seconds: float | None) -> str:
    return "–" if seconds is None else _value(seconds, "s")


def _value(value: float, unit: str, *, sign: bool = False) -> str:
    digits = 0 if unit in ("jobs", "runs") or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:{'+' if sign else ''},.{digits}f}"
    return f"{text} {unit}" if unit not in ("", "jobs", "runs") else text


def effect_cells(each: dict[str, Any]) -> tuple[str, ...]:
    """Return an effect's measure, values and verdict as cells of a table."""
    return (
        each["measure"],
        _value(each["control"], each["unit"]),
        _value(each["variant"], each["unit"]),
        _value(each["difference"], each["unit"], sign=True),
        each["verdict"] or "no difference that this log can show",
    )


#: The value of a measure in words, for renderers; seconds, or a dash for None.
value_words, seconds_words = _value, _s
