"""Routes of the pages: their HTML, and the files that it names. No data: pages ask /v1 for that, as every client does."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import Request, Response

from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import not_found
from fairlead_gateway.pages.shell import render_page, shell
from fairlead_gateway.pages.web_files import WebFiles
from fairlead_gateway.routes.router import ANY_QUERY, PUBLIC, SIGNED_IN, Router
from fairlead_gateway.views.fold import Views

#: Paths of pages, and what each is called.
PAGES: Mapping[str, str] = {
    "/": "Map",
    "/map": "Map",
    "/queues": "Queues",
    "/pending": "Pending",
    "/jobs": "Jobs",
    "/jobs/{job}": "Job",
    "/gantt": "Gantt",
    "/nodes": "Nodes",
    "/nodes/{node}": "Node",
    "/idle": "Idle",
    "/usage": "Usage",
    "/sql": "SQL",
    "/access": "Access",
    "/admin": "Admin",
    "/submit": "Submit",
}
#: Handlers of pages: who asks for one without a credential is led to the sign-in.
PAGE_HANDLERS: set[Callable[..., Any]] = set()
_FOREVER = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}


def routes(views: Views, files: WebFiles) -> Router:
    """Return the routes of the pages."""
    router = Router()
    frame = shell(files, PAGES)

    def add(path: str, title: str) -> None:
        async def page(request: Request) -> Response:
            caller = caller_of(request)
            person = "" if caller.is_open else views.name_of(caller.user)
            is_now = "at" not in request.query_params
            html = render_page(frame, files, title, views, Sight(views, caller), person, is_now=is_now)
            return Response(html, headers=frame.headers, media_type="text/html; charset=utf-8")

        _add(router, path, f"Page: {title}", page, f"page_{title.lower()}" if path != "/" else "page_first")

    for path, title in PAGES.items():
        add(path, title)

    @router.read("/web/{asset:path}", "File of the pages", right=PUBLIC, include_in_schema=False)
    async def web_file(asset: str) -> Response:
        version, _, name = asset.partition("/")
        found = files.files.get(name) if version == files.version else None
        if found is None:
            raise not_found("file of these pages", asset[:80], hint="reload the page: another version is installed")
        encoding = {"content-encoding": found.encoding} if found.encoding else {}
        return Response(found.body, headers={**_FOREVER, **encoding}, media_type=found.media_type)

    return router


def _add(
    router: Router, path: str, summary: str, page: Callable[[Request], Awaitable[Response]], operation_id: str
) -> None:
    router.read(path, summary, right=SIGNED_IN, include_in_schema=False, operation_id=operation_id)(page)
    ANY_QUERY.add(page)  # the address carries what the page shows, and the page reads it
    PAGE_HANDLERS.add(page)
