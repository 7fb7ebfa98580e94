"""HTML that every page starts from: counts of the cluster as of a sequence, and the modules that then take over. Pure.

What people wrote is escaped. The policy allows scripts and styles of this origin only; the import map and the style sheet
are the only script and style in the page, and are allowed by their digests.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from typing import NamedTuple

from fairlead_gateway.access.targets import Sight
from fairlead_gateway.pages.web_files import WebFiles
from fairlead_gateway.routes.documents import node_documents
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queue_documents import queue_documents
from fairlead_schemas.http.api import Queue
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.units.quantities import format_milli

#: Rows of a table of the first answer.
ROWS_MAX = 50
#: Verbs without which a page would ask in vain (`web/lib/rights.js`).
_VERBS: tuple[Verb, ...] = ("job:read", "node:read", "queue:read", "sql:read")
#: The map's data is asked for with the page, before any module has come.
_MAP_DATA = '<link rel="preload" as="fetch" href="/v1/map/columns" crossorigin="anonymous">'
_QUEUE_HEADS = ("queue", "waiting", "running", "GPUs charged", "guaranteed", "maximum", "borrowed")


class Shell(NamedTuple):
    """Page without the counts: made once, since it is the same for every request."""

    head: str
    #: {title: links that fetch the page's modules at once, rather than when a module that imports them has come}
    preloads: Mapping[str, str]
    #: Links to all pages.
    rail: str
    headers: dict[str, str]


def shell(files: WebFiles, pages: Mapping[str, str]) -> Shell:
    """Return the parts of a page that the files decide. `pages`: {path: title}; those without parameters are linked."""
    imports = files.import_map()
    styles = f"<style>{files.style}</style>"
    starts = (
        f'<script type="importmap">{imports}</script><script type="module" src="{files.address("main.js")}"></script>'
    )
    policy = (
        f"default-src 'none'; script-src 'self' {_digest(imports)}; style-src 'self' {_digest(files.style)}; connect-src 'self'; "
        "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    headers = {
        "cache-control": "no-store",
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
    linked = (path for path in pages if path != "/" and "{" not in path)
    rail = "".join(f'<a href="{path}">{escape(pages[path])}</a>' for path in linked)
    preloads = {} if files.missing else {title: _preloads(files, title) for title in pages.values()}
    return Shell(styles + ("" if files.missing else starts), preloads, rail, headers)


def _digest(text: str) -> str:
    """Return what a policy names a script or style inside the HTML by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _preloads(files: WebFiles, title: str) -> str:
    modules = files.modules_of("main.js", f"pages/{title.lower()}.js")
    return "".join(f'<link rel="modulepreload" href="{files.address(name)}">' for name in modules)


def render_page(
    frame: Shell, files: WebFiles, title: str, views: Views, sight: Sight, person: str, *, is_now: bool = True
) -> str:
    """Return a page as of the views, with the rows that the caller may see. `person`: the caller's name; `is_now`: it is not asked for as
    of a past moment."""
    may = " ".join(verb for verb in _VERBS if sight.caller.may_anywhere(verb))
    needs_map = title == "Map" and is_now and "node:read" in may and not files.missing
    preloads = frame.preloads.get(title, "") + (_MAP_DATA if needs_map else "")
    sender = "everybody may do everything here: no sign-on" if sight.caller.is_open else person
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)} – Fairlead</title>{frame.head}{preloads}</head>
<body data-sequence="{views.sequence}" data-person="{escape(sender, quote=True)}" data-may="{may}"><div id="app">
<header class="top"><a class="brand" href="/map">Fairlead</a><span class="spring"></span><span class="quiet">{escape(sender)}</span></header>
<nav class="rail" aria-label="Pages">{frame.rail}</nav><main id="main">{_missing(files.missing)}{_counts(views, sight)}</main>
<footer class="time"><span>as of sequence <b>{views.sequence}</b></span></footer></div></body></html>"""


def _missing(modules: Iterable[str]) -> str:
    names = ", ".join(modules)
    if not names:
        return ""
    return (
        '<p class="notice">These are counts only. The pages need their modules, which this installation lacks '
        f"({escape(names)}): <code>make web</code> in the repository fetches them; then start the gateway again.</p>"
    )


def _counts(views: Views, sight: Sight) -> str:
    """Return the tables of jobs, nodes and queues."""
    seen = [row for _, row in sorted(views.nodes.rows.items()) if sight.node(row)]
    nodes = node_documents(views, seen[:ROWS_MAX])
    queues = queue_documents(views, [row for row in views.queues.existing() if sight.queue(row.path)][:ROWS_MAX])
    counts = views.job_counts() if sight.all_jobs else views.job_counts(lambda path: sight.jobs_of(path))
    simulated = sum(row.inventory.simulated for row in seen)
    told = f" ({simulated} simulated)" if simulated else ""
    rows = [(n.id, n.state, str(n.gpus), str(n.gpus_free)) for n in nodes]
    return f"""<h1>The cluster</h1>
<h2>Jobs</h2>{_table(("state", "jobs"), [(state, str(count)) for state, count in counts.items()])}
<h2>Nodes: {len(seen)}{told}</h2>{_table(("node", "state", "GPUs", "free"), rows)}
<h2>Queues</h2>{_table(_QUEUE_HEADS, [_queue(q) for q in queues])}"""


def _queue(queue: Queue) -> tuple[str, ...]:
    amounts = (queue.guaranteed.get("gpu"), queue.maximum.get("gpu"), queue.borrowed.get("gpu"))
    told = ["–" if amount is None else format_milli(amount) for amount in amounts]
    return queue.path, str(queue.waiting), str(queue.running), format_milli(queue.gpu_milli_charged), *told


def _table(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
