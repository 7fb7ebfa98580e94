"""The first page: what this is, live counts, where to go. Plain HTML; the web pages proper come later."""

from html import escape

from fairlead_gateway.views.documents import node_documents
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queuedocs import queue_documents
from fairlead_schemas.http.api import Queue
from fairlead_schemas.units.quantities import format_milli

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}th,td{text-align:left;padding:.2rem 1rem .2rem 0;border-bottom:1px solid #8884}
td.n,th.n{text-align:right}code{background:#8882;padding:.1rem .3rem;border-radius:.2rem}"""

_LINKS = (
    ("/v1/jobs", "jobs"), ("/v1/nodes", "nodes"), ("/v1/queues", "queues"), ("/v1/pools", "pools"), ("/v1/cluster", "the whole cluster"),
    ("/v1/map", "every GPU and who holds it"),
    ("/v1/events?from=1", "events"), ("/v1/schemas/job", "JSON Schema of a job file"), ("/openapi.json", "OpenAPI"),
    ("/asyncapi.json", "AsyncAPI"), ("/metrics", "metrics"), ("/readyz", "readiness"),
)  # fmt: skip


def render(views: Views) -> str:
    """The page as of the views."""
    nodes = node_documents(views, (row for _, row in sorted(views.nodes.rows.items())))
    queues = queue_documents(views, views.queues.existing())
    simulated = sum(node.simulated for node in nodes)
    told = f" ({simulated} simulated)" if simulated else ""
    links = " · ".join(f'<a href="{escape(path)}">{escape(name)}</a>' for path, name in _LINKS)
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Fairlead</title><style>{_STYLE}</style>
<h1>Fairlead</h1>
<p>A GPU cluster you can question: submit jobs, share GPUs, and ask <em>why</em>. Every decision is an event
in one log; this page is true for sequence <b>{views.sequence}</b>. There is no authentication yet.</p>
<p>{links}</p>
<h2>Jobs</h2>{_table(("state", "jobs"), [(state, str(count)) for state, count in views.job_counts().items()])}
<h2>Nodes: {len(nodes)}{told}</h2>{_table(("node", "state", "GPUs", "free"), [(n.id, n.state, str(n.gpus), str(n.gpus_free)) for n in nodes[:200]])}
<h2>Queues</h2>{_table(_QUEUE_HEADS, [_queue(q) for q in queues[:200]])}
<p>Try: <code>fairlead submit -- echo hello</code>, then <code>fairlead why last</code>.</p></html>"""


_QUEUE_HEADS = ("queue", "waiting", "running", "GPUs charged", "guaranteed", "maximum", "borrowed")


def _queue(queue: Queue) -> tuple[str, ...]:
    amounts = (queue.guaranteed.get("gpu"), queue.maximum.get("gpu"), queue.borrowed.get("gpu"))
    told = ["–" if amount is None else format_milli(amount) for amount in amounts]
    return queue.path, str(queue.waiting), str(queue.running), format_milli(queue.gpu_milli_charged), *told


def _table(names: tuple[str, ...], rows: "list[tuple[str, ...]]") -> str:
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
