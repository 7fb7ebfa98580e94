"""What a gateway answers about a study that it plays: its document and its watch."""

from typing import Any

import httpx
import msgspec


def about(state: str, **more: Any) -> dict[str, Any]:
    """Return a study's document."""
    told = {"id": "0a1b2c3d-1", "state": state, "user": "ada", "created_at": "2026-01-01T00:00:00.000Z", "ahead": 0}
    empty = {"commits_read": 0, "plays_done": 0, "plays": 0, "message": "", "revision": 1, "study": None}
    return {**told, **empty, **more}


def events(*documents: dict[str, Any]) -> httpx.Response:
    """Return the watch of a study."""
    lines = [f"event: progress\ndata: {msgspec.json.encode(each).decode()}\n\n" for each in documents]
    text = "".join([*lines, 'event: end\ndata: {"reason":"done"}\n\n'])
    return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})
