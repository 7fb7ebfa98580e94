"""`queues` and `queues apply`: who may have how much."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead import columns, jobfile, render
from fairlead.commands.options import Output, connect
from fairlead.errors import Refused
from fairlead.render import Format
from fairlead_schemas.api import Page, Queue

app = typer.Typer(help="List queues, or create and change them.", invoke_without_command=True)


@app.callback()
def queues(ctx: typer.Context, output: Output = Format.table) -> None:
    """List queues with their use and quota.

    fairlead queues

    fairlead queues apply -f queues.yaml
    """
    if ctx.invoked_subcommand is not None:
        return
    with connect() as client:
        _write(client.queues(), output)


@app.command()
def apply(
    file: Annotated[Path, typer.Option("--file", "-f", help="YAML: a list of queues, or one.", show_default=False)],
    output: Output = Format.table,
) -> None:
    """Create queues or replace their settings.

    fairlead queues apply -f queues.yaml

    Each is a map such as {path: research/vision, gpuQuota: 8}; without gpuQuota there is no quota.
    """
    try:
        text = file.read_text()
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}") from error
    wanted = read_queues(text, file.name)
    with connect() as client:
        for path, settings in wanted:
            client.configure_queue(path, settings)
        page = client.queues()
    paths = {path for path, _ in wanted}
    _write(Page(items=[q for q in page.items if q.path in paths], next=None, sequence=page.sequence), output)


def read_queues(text: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    """(path, settings) of every queue in a file. Raises Refused; the gateway checks the settings."""
    documents = [
        d
        for document in jobfile.read_yaml(text, name)
        for d in (document if isinstance(document, list) else [document])
    ]
    wanted: list[tuple[str, dict[str, Any]]] = []
    for document in documents:
        if not isinstance(document, dict) or not isinstance(document.get("path"), str):
            raise Refused(f"{name}: expected queues such as {{path: research/vision, gpuQuota: 8}}")
        wanted.append((document["path"], {key: value for key, value in document.items() if key != "path"}))
    if not wanted:
        raise Refused(f"{name}: expected at least one queue, found none")
    return wanted


def _write(page: Page[Queue], output: Format) -> None:
    render.write(render.page(page, columns.QUEUES, lambda q: f"queue/{q.path}", output, empty="no queues"))
