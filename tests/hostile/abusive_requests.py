"""Requests that no client should send: raw bytes, bodies, query strings, names. Data only; `abuse.py` sends them.

A request either must be refused (4xx) or may be answered in any way but with an error of the server.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

OPENAPI = Path(__file__).parents[2] / "docs" / "openapi.json"
HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"
GOOD = b'{"command":["true"]}'


class Raw(NamedTuple):
    """Bytes for one connection, and the statuses of which one is expected (0: closed without an answer)."""

    what: str
    sent: bytes
    expected: tuple[int, ...]


def post(body: bytes, *heads: bytes, host: bytes = HOST) -> bytes:
    """Return a POST of a job file."""
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST /v1/jobs HTTP/1.1\r\n" + host + JSON + length + b"".join(heads) + b"Connection: close\r\n\r\n" + body


def get(target: bytes, *heads: bytes, host: bytes = HOST) -> bytes:
    """Return a GET."""
    return b"GET " + target + b" HTTP/1.1\r\n" + host + b"".join(heads) + b"Connection: close\r\n\r\n"


#: Heads: other names (a page that rebinds its own), other origins, smuggling, sizes, garbage.
RAW = (
    *(Raw(f"Host: {name.decode()}", make(host=b"Host: " + name + b"\r\n"), (421, 400)) for name in
      (b"evil.example", b"evil.example:18200", b"localhost.evil.example", b"192.168.0.1", b"a b", b"[::1", b"")
      for make in (lambda host: post(GOOD, b"Origin: http://evil.example\r\nSec-Fetch-Site: same-origin\r\n", host=host), lambda host: get(b"/v1/jobs", host=host))),
    Raw("no Host", get(b"/v1/jobs", host=b""), (400,)),
    Raw("two Hosts", get(b"/v1/jobs", HOST), (400,)),
    Raw("an absolute target of another name", get(b"http://evil.example/v1/jobs"), (421, 400)),
    Raw("an authority as target", get(b"evil.example:80"), (400, 421)),
    *(Raw(f"a page of another origin: {head.decode().strip()}", post(GOOD, head), (403,)) for head in
      (b"Origin: http://evil.example\r\n", b"Origin: null\r\n", b"Sec-Fetch-Site: cross-site\r\n", b"Sec-Fetch-Site: same-site\r\n",
       b"Origin: http://127.0.0.1:1\r\n")),
    Raw("a form", post(b"command=id").replace(b"application/json", b"application/x-www-form-urlencoded"), (415,)),
    Raw("plain text", post(GOOD).replace(b"application/json", b"text/plain"), (415,)),
    Raw("gzip by name", post(GOOD, b"Content-Encoding: gzip\r\n"), (415,)),
    Raw("a header of 200 kB", get(b"/v1/jobs", b"X-A: " + b"a" * 200_000 + b"\r\n"), (431, 400)),
    Raw("5,000 headers", get(b"/v1/jobs", b"".join(b"X-%d: a\r\n" % n for n in range(5000))), (431, 400)),
    Raw("a target of 200 kB", get(b"/v1/jobs?state=" + b"a" * 200_000), (400, 414, 431)),
    Raw("length and chunks", post(GOOD, b"Transfer-Encoding: chunked\r\n"), (400, 501)),
    Raw("two lengths", post(GOOD, b"Content-Length: 3\r\n"), (400,)),
    Raw("a negative length", b"POST /v1/jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: -1\r\n\r\n", (400,)),
    Raw("a chunk of garbage", b"POST /v1/jobs HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", (400,)),
    Raw("a NUL in a header", get(b"/v1/jobs", b"X-A: a\0b\r\n"), (400,)),
    Raw("garbage", bytes(range(256)) * 4, (400, 0)),
    Raw("TLS to a plain port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, (400, 0)),
    Raw("an unknown method", b"BREW /v1/jobs HTTP/1.1\r\n" + HOST + b"\r\n", (400, 405)),
    Raw("HTTP/9.9", b"GET /v1/jobs HTTP/9.9\r\n" + HOST + b"\r\n", (400, 505)),
)  # fmt: skip


def _job(**fields: Any) -> bytes:
    return json.dumps({"command": ["true"], **fields}).encode()


#: Job files that must be refused by field.
REFUSED_JOBS = (
    b"", b"{", b"null", b"[]", b"{}", b"7", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"command":' + b"[" * 100_000, b'{"command":[]}',
    b'{"command":["true"],"command":["id"]}', b'{"command":["true"],"priority":1e400}', b'{"command":["true"],"priority":NaN}',
    b'{"command":["a\\u0000b"]}', b'{"command":["\\ud800"]}', b'{"command":["true"],"array":18446744073709551616}',
    _job(unknown=1), _job(command="x" * 10), _job(nodes=-1), _job(nodes=10_000_000), _job(array=-1), _job(array=10**9), _job(priority=10**9),
    _job(env={"A\nB": "x"}), _job(env={"": "x"}), _job(env={"A=B": "x"}), _job(env={"FAIRLEAD_JOB": "1"}), _job(env={"LD_PRELOAD": "/x"}),
    _job(env={"A": "x\0"}), _job(labels={"a\nb": "x"}), _job(labels={"a": "x" * 10_000}), _job(name="a\nb"), _job(name="x" * 10_000), _job(name="\0"),
    *(_job(project=name) for name in ("../p", "*", ">", "a b", "a/../b", "\0", "x" * 1000)),
    *(_job(resources={"memory": amount}) for amount in ("0", "-1", "1e99", "NaN", "9" * 400, "1Zi", "")),
    *(_job(resources={"nvidia.com/gpu": amount}) for amount in (-1, "0.5x", 10**20, "１")),
    _job(resources={"nvidia.com/../gpu": 1}), _job(resources={"": 1}),
    *(_job(image=name) for name in ("/", ".", "//", "../containers", "../images", "a b", "a\nb", "--privileged", "x:y:z", "A/B@sha256:0")),
    *(_job(workdir=name) for name in ("relative", "/a\0b")), *(_job(queue=name) for name in ("..", "a//b", "a\nb", "*", ">", "x" * 5000)),
    _job(time={"total": "-1s"}), _job(time={"total": "9" * 300 + "s"}), _job(retries={"max": 10**9}), _job(startAt="yesterday"),
    _job(dependsOn=[{"job": "../1"}]), _job(volumes=["x:relative"]), _job(volumes=["../x:/data"]), _job(secrets=["../../etc/shadow"]),
    _job(args=["x" * 70_000]), _job(env={f"A{n}": "x" * 100 for n in range(2000)}), b'{"command":["' + b"x" * 8_000_000 + b'"]}',
)  # fmt: skip

#: Values of path and query parameters; answers must not be errors of the server.
VALUES = (
    "",
    "0",
    "-1",
    "1e9999",
    "99999999999999999999999",
    "NaN",
    "%00",
    "%0A",
    "%ff%fe",
    "..%2f..%2fetc%2fpasswd",
    "'%20OR%201=1--",
    "%3E",
    "*",
    "%F0%9F%98%80",
    "x" * 3000,
    "%25s%25n",
    "true",
    "sim-1%00",
    "{}",
    "%5B1%5D",
)
#: Bodies for every route that takes one. None of them is a change that anybody could mean.
BODIES = (b"", b"{", b"null", b"7", b'{"no such field":1}', b"\xff", b"[" * 5000, b'{"reason":"\\ud800"}')
#: A parameter that stands for a thing; nothing has this name.
NOBODY = "no-such-thing"


def reads() -> list[str]:
    """Return targets of GETs: every route with odd values in every place of the path and every query parameter."""
    found: list[str] = []
    for path, methods in json.loads(OPENAPI.read_text())["paths"].items():
        if "get" not in methods:
            continue
        names = [each["name"] for each in methods["get"].get("parameters", []) if each.get("in") == "query"]
        plain = _filled(path, NOBODY)
        found += [_filled(path, value) for value in VALUES if "{" in path and value]
        found += [f"{plain}?{name}={value}" for name in names if name != "follow" for value in VALUES]
        found += [
            f"{plain}?unknown=1",
            f"{plain}?{'&'.join('limit=1' for _ in range(500))}",
            f"{plain}%00",
            f"{plain}/../../x",
        ]
    return found


def changes() -> list[tuple[str, str, bytes]]:
    """Return (method, target, body) of changes: every route with bodies that mean nothing, about things that are not there."""
    found: list[tuple[str, str, bytes]] = []
    for path, methods in json.loads(OPENAPI.read_text())["paths"].items():
        bodiless = path == "/v1/breaker:reset"  # it needs no body, so an odd one is no reason to refuse
        for method in sorted({"post", "put", "delete"} & methods.keys()):
            found += [(method.upper(), _filled(path, NOBODY), body) for body in BODIES if not bodiless]
            found += [(method.upper(), _filled(path, value), b"{}") for value in VALUES if "{" in path and value]
    return found


def _filled(path: str, value: str) -> str:
    """Put a value into every place of a route's path."""
    return re.sub(r"\{[^}]*\}", lambda _: value, path)
