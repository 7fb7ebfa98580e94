"""A registry of images over HTTP on this machine, with what an engine's pull needs; it fails on demand.

The distribution API's GET and HEAD of manifests and blobs (OCI distribution specification, "Pull"), over made-up
images of busybox. An engine takes a registry on 127.0.0.0/8 without TLS.
"""

import gzip
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from fairlead_schemas.units.image_names import parse_registries

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
#: Loopback is no registry unless an admin lists it.
ON_LOOPBACK = parse_registries("public, 127.0.0.1")
CHUNK_BYTES = 64 * 1024
#: The registry's own codes, as registries answer them.
ERRORS = {
    401: ("UNAUTHORIZED", "authentication required"),
    404: ("MANIFEST_UNKNOWN", "manifest unknown"),
    429: ("TOOMANYREQUESTS", "too many requests"),
    500: ("UNKNOWN", "something went wrong"),
}


class Stored(NamedTuple):
    """One image: its manifest's bytes and digest."""

    manifest: bytes
    digest: str


class Registry:
    """Use as a context manager. Failing: `status` answers manifests so; `cuts` blobs break off half-way; a blob goes
    out at `bytes_per_s`, and not at all while `stalls`."""

    def __init__(self) -> None:
        self.status = 0
        self.cuts = 0
        self.bytes_per_s = 0
        self.stalls = False
        self.blobs: dict[str, bytes] = {}
        self.images: dict[str, Stored] = {}
        #: Blobs asked for, in order.
        self.asked: list[str] = []
        self.manifests = 0
        self._lock = threading.Lock()

    def __enter__(self) -> "Registry":
        handler = type("Handler", (_Handler,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stalls, self.bytes_per_s = False, 0
        self._server.shutdown()
        self._server.server_close()

    def push(self, name: str, *layers: bytes, tag: str = "1", user: str = "") -> str:
        """Hold an image of these tar files; the whole name by which an engine can pull it."""
        packed = [gzip.compress(layer, 1) for layer in layers]
        diff_ids = [_digest(layer) for layer in layers]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"User": user} if user else {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
        manifest: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._hold(json.dumps(config).encode(), "application/vnd.docker.container.image.v1+json"),
            "layers": [self._hold(each, "application/vnd.docker.image.rootfs.diff.tar.gzip") for each in packed],
        }
        data = json.dumps(manifest).encode()
        self.images[f"{name}:{tag}"] = self.images[f"{name}:{_digest(data)}"] = Stored(data, _digest(data))
        return f"{self.address}/{name}:{tag}"

    def digest(self, image: str) -> str:
        """ "<registry>/<name>@sha256:…" of one that was pushed."""
        name = image.removeprefix(self.address + "/")
        return f"{self.address}/{name.rpartition(':')[0]}@{self.images[name].digest}"

    def take_cut(self) -> bool:
        """Whether this blob is one to break off."""
        with self._lock:
            cut = self.cuts > 0
            self.cuts -= cut
        return cut

    def _hold(self, data: bytes, kind: str) -> dict[str, Any]:
        self.blobs[_digest(data)] = data
        return {"mediaType": kind, "size": len(data), "digest": _digest(data)}


class _Handler(BaseHTTPRequestHandler):
    registry: Registry
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        if parts == ["v2"]:
            self._send(200, b"{}", "application/json")
        elif parts[-2] == "manifests":
            self._manifest("/".join(parts[1:-2]), parts[-1])
        else:
            self._blob(parts[-1])

    def _manifest(self, name: str, reference: str) -> None:
        self.registry.manifests += 1
        stored = self.registry.images.get(f"{name}:{reference}")
        status = self.registry.status or (200 if stored else 404)
        if stored is None or status != 200:
            code, message = ERRORS[status]
            body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
            self._send(status, body, "application/json")
        else:
            self._send(200, stored.manifest, MANIFEST, stored.digest)

    def _blob(self, digest: str) -> None:
        registry, data = self.registry, self.registry.blobs[digest]
        registry.asked.append(digest)
        first = int(self.headers.get("Range", "bytes=0-")[6:].partition("-")[0])
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(data) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        half = len(data) // 2 if len(data) > CHUNK_BYTES and registry.take_cut() else len(data)
        for at in range(first, half, CHUNK_BYTES):
            while registry.stalls:
                time.sleep(0.02)
            if registry.bytes_per_s:
                time.sleep(CHUNK_BYTES / registry.bytes_per_s)
            try:
                self.wfile.write(data[at : min(half, at + CHUNK_BYTES)])
            except OSError:
                return
        if half < len(data):
            self.close_connection = True

    def _send(self, status: int, body: bytes, kind: str, digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what was asked is counted."""


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
