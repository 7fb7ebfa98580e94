"""One HTML page of a study: no script, no network, readable at any width, by keyboard, and in the dark.

The page's own policy forbids everything but its style, so that a name which were not escaped could still do nothing. Start at `page`.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from fairlead_replay.whatif.documents import (
    effect_cells,
    lengths_line,
    notes_of,
    seconds_words,
    starts_line,
    value_words,
)

#: Width and height of a curve's drawing.
WIDTH, HEIGHT = 320, 120
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --line: #767676; --good: #17692e; --bad: #a11; --was: #555; --new: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181c; --line: #8a8f98; --good: #6fd08c; --bad: #ff8f8f; --was: #b5b5b5; --new: #8ab4f8; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto; max-width: 62rem; padding: 1rem; overflow-wrap: anywhere; }
.skip { position: absolute; left: -99rem; } .skip:focus { position: static; }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1rem; list-style: none; padding: 0; }
a { color: var(--new); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
caption { text-align: left; font-weight: 600; padding: .8rem 0 .3rem; }
.grade { font-size: 2rem; font-weight: 700; margin: 0; }
.worse { color: var(--bad); } .better { color: var(--good); }
.curves { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 0; max-width: 100%; } svg { max-width: 100%; height: auto; border-left: 1px solid var(--line); border-bottom: 1px solid var(--line); }
.was { stroke: var(--was); stroke-dasharray: 5 3; } .new { stroke: var(--new); } path { fill: none; stroke-width: 2; }
a:focus-visible, .wide:focus-visible { outline: 3px solid var(--new); outline-offset: 2px; }
"""


def page(words: dict[str, Any]) -> str:
    """Return a study's document (`fairlead_replay.whatif.documents.document`) as a page."""
    sections = [("trust", "How far to believe it", _trust(words))]
    if words["withheld"]:
        sections.append(
            (
                "effects",
                "Effects",
                "<p><strong>The effects are withheld.</strong> The control is too far from the record.</p>",
            )
        )
    else:
        effects = "".join(_effects_table(words, kind) for kind in ("queue", "pool", "size", "user"))
        sections += [
            ("effects", "Effects", effects),
            ("waits", "Waits by queue", _curves(words["curves"])),
            ("jobs", "Jobs", _jobs(words)),
        ]
    if notes := notes_of(words):
        sections.append(("notes", "Notes", _list(notes)))
    sections = [each for each in sections if each[2]]
    links = "".join(f"<li><a href='#{name}'>{escape(title)}</a></li>" for name, title, _ in sections)
    body = "".join(f"<section id={name}><h2>{escape(title)}</h2>{text}</section>" for name, title, text in sections)
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">'
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>What if: grade {escape(words['grade'])}</title><style>{_STYLE}</style></head><body>"
        "<a class=skip href='#main'>Skip to the answer</a>"
        f"<header><h1>What if</h1><p class=grade>Grade {escape(words['grade'])}</p><p>{escape(words['grade_words'])}.</p>"
        f"<p>{escape(words['from'])} to {escape(words['to'])}, {words['seeds']} pairs of plays, users {escape(words['users'])}.</p></header>"
        f"<nav aria-label=Contents><ul>{links}</ul></nav><main id=main>{body}</main></body></html>\n"
    )


def _trust(words: dict[str, Any]) -> str:
    rows = [
        (
            each["queue"],
            each["real_starts"],
            each["played_starts"],
            seconds_words(each["real_wait_s"]),
            seconds_words(each["played_wait_s"]),
            f"{each['distance']:.2f}",
        )
        for each in words["fidelity"]["queues"]
    ]
    heads = ("queue", "starts", "in the control", "mean wait", "in the control", "distance")
    return (
        _list(words["because"])
        + _table("The recorded policy, played, against the record", heads, rows)
        + f"<p>{escape(starts_line(words['fidelity']))}</p><p>{escape(lengths_line(words))}</p>"
    )


def _effects_table(words: dict[str, Any], kind: str) -> str:
    rows = [(each["name"], *effect_cells(each)) for each in words["effects"] if each["kind"] == kind]
    return _table(f"By {kind}", (kind, "measure", "control", "variant", "difference", "verdict"), rows)


def _curves(curves: Sequence[dict[str, Any]]) -> str:
    """Return drawings of the part of each queue's jobs that has waited at most so long."""
    drawn = "".join(_curve(each) for each in curves if max((*each["control"], *each["variant"]), default=0) > 0)
    if not drawn:
        return ""
    legend = (
        "<p>Part of the jobs that started within a time: dashed as recorded policy, whole line with the change.</p>"
    )
    return f"{legend}<div class=curves>{drawn}</div>"


def _curve(each: dict[str, Any]) -> str:
    most = max(*each["control"], *each["variant"])

    def path(values: Sequence[float]) -> str:
        last = len(values) - 1
        points = [f"{value / most * WIDTH:.1f} {HEIGHT - at / last * HEIGHT:.1f}" for at, value in enumerate(values)]
        return "M" + "L".join(points)

    def middle(values: Sequence[float]) -> str:
        return seconds_words(values[len(values) // 2])

    told = f"half of the jobs waited {middle(each['control'])}, with the change {middle(each['variant'])}; the scale ends at {seconds_words(most)}"
    name = escape(each["queue"])
    return (
        f"<figure><svg role=img aria-label='{name}: {escape(told)}' viewBox='0 0 {WIDTH} {HEIGHT}' width={WIDTH} height={HEIGHT}>"
        f"<path class=was d='{path(each['control'])}'/><path class=new d='{path(each['variant'])}'/></svg>"
        f"<figcaption><strong>{name}</strong>: {escape(told)}</figcaption></figure>"
    )


def _jobs(words: dict[str, Any]) -> str:
    tables = _moved_table("Start later", words["losers"]) + _moved_table("Start earlier", words["winners"])
    if not tables:
        return ""
    told = "Why a job waits in a play is told by the play's log: <code>fairlead whatif … --keep DIR</code>, then <code>fairlead --log DIR/variant why JOB</code>."
    return f"{tables}<p>{told}</p>"


def _moved_table(caption: str, rows: list[dict[str, Any]]) -> str:
    shown = [
        (
            each["id"],
            each["name"],
            each["user"],
            each["queue"],
            f"{each['gpus']:g}",
            seconds_words(each["control_wait_s"]),
            seconds_words(each["variant_wait_s"]),
            value_words(each["difference_s"], "s", sign=True),
            f"{each['of_pairs']} of {each['pairs']}",
        )
        if "id" in each
        else (
            f"{each['others']} of others",
            "",
            "",
            "",
            "",
            "",
            "",
            value_words(each["difference_s"], "s", sign=True),
            "",
        )
        for each in rows
    ]
    heads = ("job", "name", "user", "queue", "GPUs", "wait", "in the variant", "difference", "in pairs")
    return _table(caption, heads, shown)


def _table(caption: str, head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> str:
    if not rows:
        return ""
    heads = "".join(f"<th scope=col>{escape(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(_cell(each) for each in row) + "</tr>" for row in rows)
    name = escape(caption)
    return (
        f"<div class=wide tabindex=0 role=region aria-label='{name}'><table><caption>{name}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: object) -> str:
    text = escape(str(value))
    return f"<td class={text}>{text}</td>" if text in ("worse", "better") else f"<td>{text}</td>"


def _list(items: Iterable[str]) -> str:
    found = "".join(f"<li>{escape(each)}</li>" for each in items)
    return f"<ul>{found}</ul>" if found else ""
