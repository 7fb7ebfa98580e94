"""Files of volumes over HTTP: uploads by tus 1.0 (creation, termination), and reading with Range and a digest (RFC 9110, RFC 9530).

A client that was cut off asks for the offset and sends the rest, at this gateway or another one. What people wrote is served as an
attachment that no browser opens. Start at `routes`.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator, Callable
from typing import Annotated, NamedTuple

from fastapi import Query, Request, Response
from starlette.responses import StreamingResponse

from fairlead_gateway.access.callers import Callers, caller_of
from fairlead_gateway.access.streams import end_of, while_allowed
from fairlead_gateway.access.targets import volume_target
from fairlead_gateway.errors import HttpError, bad_field, not_found
from fairlead_gateway.http_messages import HEAD, LIST_BYTES_MAX, JsonResponse, head_of, read_body
from fairlead_gateway.routes.router import Router, json_content, on_volume
from fairlead_gateway.sources import volume_files as files
from fairlead_gateway.sources.volume_files import OpenFile, Upload, VolumeFiles, VolumePlace
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http.storage import UploadInfo

VERSION, RESUMABLE = "1.0.0", "tus-resumable"
CHUNK_TYPE = b"application/offset+octet-stream"
OCTETS = "application/octet-stream"
#: Uploads of one file.
LENGTH_MAX = 1 << 50
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})\Z", re.ASCII)
_NUMBER = re.compile(r"\d{1,16}\Z", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)
_BINARY = {"type": "string", "format": "binary"}
#: Nothing in it runs in a browser, and no cache keeps it.
SAFE = {
    "content-disposition": "attachment",
    "content-security-policy": "sandbox; default-src 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}

Path = Annotated[str, Query(max_length=files.PATH_BYTES_MAX, description="Of the file, within the volume.")]


class NewUpload(NamedTuple):
    """What the headers of a creation say."""

    path: str
    length: int
    digest: str


class VolumeFileRoutes:
    """Handlers over views and the disk. Errors of the disk become answers in `_call`."""

    def __init__(self, views: Views, disk: VolumeFiles) -> None:
        self._views, self._disk = views, disk

    def place(self, volume: str) -> VolumePlace:
        """Return a volume for the disk. Raise HttpError (404, 409)."""
        row = self._views.storage.volumes.get(volume)
        if row is None:
            raise not_found("volume", volume[:80], hint="GET /v1/volumes lists them")
        if not row.uid:
            raise HttpError(
                409,
                "conflict",
                f"volume {row.name} was made before files of volumes could be reached: make another one",
            )
        return VolumePlace(row.name, row.sequence, row.storage_class, row.uid)

    async def begin(self, volume: str, wanted: NewUpload, by: str) -> Upload:
        """Begin an upload or continue it; an empty file is whole at once. Raise HttpError."""
        place = self.place(volume)
        if wanted.length > self._views.storage.volumes[volume].quota_bytes:
            raise HttpError(
                413,
                "too_large",
                f"volume {volume} has a quota of fewer bytes",
                hint=f"fairlead volumes resize {volume} SIZE",
            )
        return await self._call(lambda: self._disk.begin(place, wanted.path, wanted.length, wanted.digest, by))

    async def state(self, volume: str, upload: str) -> Upload:
        """Return an upload that is not whole. Raise HttpError (404)."""
        place = self.place(volume)
        return _there(await self._call(lambda: self._disk.state(place, upload)), upload)

    async def append(self, volume: str, upload: str, offset: int, data: bytes) -> Upload:
        """Append bytes. Raise HttpError: 409 with the offset that is right, 422 for a whole file of another digest."""
        place = self.place(volume)
        return _there(await self._call(lambda: self._disk.append(place, upload, offset, data)), upload)

    async def cancel(self, volume: str, upload: str) -> None:
        """Remove an upload. Raise HttpError (404)."""
        place = self.place(volume)
        if not await self._call(lambda: self._disk.cancel(place, upload)):
            raise not_found("upload", upload[:80])

    async def open(self, volume: str, path: str) -> OpenFile:
        """Open a file. Raise HttpError (404, 409, 422)."""
        place = self.place(volume)
        return await self._call(lambda: self._disk.open(place, path))

    @staticmethod
    async def _call[T](work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except files.BadPath as error:
            raise bad_field("path", str(error)) from None
        except files.NotReached as error:
            raise HttpError(409, "not_reached", str(error)) from None
        except files.WrongOffset as error:
            raise HttpError(
                409, "wrong_offset", str(error), headers=((b"upload-offset", b"%d" % error.offset),)
            ) from None
        except files.WrongDigest as error:
            raise bad_field("digest", f"{error}, found another one: the upload is removed") from None
        except OSError as error:
            raise HttpError(507, "storage_failed", f"the file system says: {error.strerror or error}") from None


def routes(views: Views, disk: VolumeFiles, callers: Callers) -> Router:
    """Return all of them."""
    router, handlers = Router(), VolumeFileRoutes(views, disk)
    _add_uploads(router, handlers)

    @router.read(
        "/v1/volumes/{volume}/files",
        "Read a file of a volume, or a range of it; with Want-Repr-Digest the answer has the SHA-256 of the whole file",
        right=on_volume("volume:read"),
        response_class=Response,
        responses={200: {"description": "The file", "content": json_content(_BINARY, OCTETS)}},
    )
    async def read_volume_file(volume: str, request: Request, path: Path) -> Response:
        file = await handlers.open(volume, path)
        try:
            headers = {**SAFE, "etag": f'"{file.tag}"', "accept-ranges": "bytes"}
            if "sha-256" in request.headers.get("want-repr-digest", ""):
                digest = base64.b64encode(await asyncio.to_thread(file.digest)).decode()
                headers["repr-digest"] = f"sha-256=:{digest}:"
            first, last, status = _range(request, file)
            headers["content-length"] = str(last - first)
            if status == 206:
                headers["content-range"] = f"bytes {first}-{last - 1}/{file.size}"
            caller = caller_of(request)

            def may_still() -> bool:
                target = volume_target(views, volume)
                return target is not None and caller.may("volume:read", target)

            chunks = while_allowed(_chunks(file, first, last), end_of(callers, caller, may_still), lambda _: b"")
        except BaseException:
            file.close()
            raise
        return StreamingResponse(chunks, status, headers, OCTETS)

    return router


def _add_uploads(router: Router, handlers: VolumeFileRoutes) -> None:
    right = on_volume("volume:write")

    @router.command(
        "POST",
        "/v1/volumes/{volume}/uploads",
        "Begin an upload (tus 1.0), or find the one that was begun of the same file",
        UploadInfo,
        right=right,
        status=201,
        keyed=False,
    )
    async def begin_upload(volume: str, request: Request) -> Response:
        head = head_of(request)
        _require_version(request)
        upload = await handlers.begin(volume, _new_upload(request), head.user)
        location = f"/v1/volumes/{volume}/uploads/{upload.id}"
        return JsonResponse(_document(upload), 201, {"location": location, **_headers(upload)})

    @router.read(
        "/v1/volumes/{volume}/uploads/{upload}",
        "Progress of an upload that is not whole (tus 1.0)",
        UploadInfo,
        right=right,
    )
    async def get_upload(volume: str, upload: str) -> Response:
        found = await handlers.state(volume, upload)
        return JsonResponse(_document(found), 200, _headers(found))

    @router.command(
        "PATCH",
        "/v1/volumes/{volume}/uploads/{upload}",
        "Send bytes of an upload from an offset on, at most 8 MiB (tus 1.0)",
        UploadInfo,
        right=right,
        keyed=False,
    )
    async def append_to_upload(volume: str, upload: str, request: Request) -> Response:
        _require_version(request)
        offset = _number(request, "Upload-Offset")
        data = await read_body(request.scope[HEAD], request.receive, LIST_BYTES_MAX, (CHUNK_TYPE,))
        return Response(None, 204, _headers(await handlers.append(volume, upload, offset, data)))

    @router.command(
        "DELETE",
        "/v1/volumes/{volume}/uploads/{upload}",
        "Remove an upload that is not whole (tus 1.0)",
        right=right,
        keyed=False,
    )
    async def cancel_upload(volume: str, upload: str, request: Request) -> Response:
        _require_version(request)
        await handlers.cancel(volume, upload)
        return Response(None, 204, {RESUMABLE: VERSION})


# ------------------------------------------------------------------------------- heads


def _require_version(request: Request) -> None:
    if request.headers.get(RESUMABLE) != VERSION:
        headers = ((b"tus-version", VERSION.encode()),)
        raise HttpError(412, "precondition_failed", f"expected the header Tus-Resumable: {VERSION}", headers=headers)


def _new_upload(request: Request) -> NewUpload:
    """Read the head of a creation: Upload-Length, and `path` and `digest` of Upload-Metadata in base64. Raise HttpError (422)."""
    length, known = _number(request, "Upload-Length"), dict[str, str]()
    if length > LENGTH_MAX:
        raise bad_field("Upload-Length", f"expected at most {LENGTH_MAX}")
    for pair in request.headers.get("upload-metadata", "").split(","):
        name, _, value = pair.strip().partition(" ")
        try:
            known[name] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise bad_field("Upload-Metadata", f"expected base64 after {name[:40]!r}") from None
    path, digest = known.get("path") or known.get("filename", ""), known.get("digest", "")
    if digest and not _HEX.match(digest):
        raise bad_field("Upload-Metadata", "digest: expected a SHA-256 in 64 lower-case hex digits")
    return NewUpload(path, length, digest)


def _number(request: Request, name: str) -> int:
    text = request.headers.get(name, "")
    if not _NUMBER.match(text):
        raise bad_field(name, f"expected a number of bytes, found {text[:40]!r}")
    return int(text)


def _headers(upload: Upload) -> dict[str, str]:
    return {
        RESUMABLE: VERSION,
        "upload-offset": str(upload.offset),
        "upload-length": str(upload.length),
        "cache-control": "no-store",
    }


def _document(upload: Upload) -> UploadInfo:
    return UploadInfo(id=upload.id, path=upload.path, length=upload.length, offset=upload.offset)


def _there(upload: Upload | None, name: str) -> Upload:
    if upload is None:
        raise not_found("upload", name[:80], hint="it is whole, was cancelled, or is a week old: begin it again")
    return upload


def _range(request: Request, file: OpenFile) -> tuple[int, int, int]:
    """Return (first byte, byte after the last, status). One range counts; with If-Range only of this very content. Raise HttpError (416)."""
    found = _RANGE.match(request.headers.get("range", ""))
    known = request.headers.get("if-range")
    if found is None or (known is not None and known != f'"{file.tag}"'):
        return 0, file.size, 200
    first, last = int(found[1]), min(int(found[2]) + 1 if found[2] else file.size, file.size)
    if first >= last:
        headers = ((b"content-range", b"bytes */%d" % file.size),)
        raise HttpError(416, "range_not_satisfiable", f"the file has {file.size} bytes", headers=headers)
    return first, last, 206


async def _chunks(file: OpenFile, first: int, last: int) -> AsyncIterator[bytes]:
    """Yield bytes of a file, then close it. One that became shorter ends early, which its reader notices by the length."""
    try:
        while first < last:
            data = await asyncio.to_thread(file.read, first, min(files.READ_BYTES, last - first))
            if not data:
                return
            first += len(data)
            yield data
    finally:
        file.close()
