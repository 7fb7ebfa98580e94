"""Files into volumes and out of them, in parts: a transfer that was cut off continues where it was, after the death of either end.

Of an upload nothing is remembered here: the same file to the same path is the same upload, which the gateway knows. Of a download the
bytes that came lie next to the destination, under the tag of the content that they are of. Both end with a comparison of digests.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fairlead.client import Client
from fairlead.errors import Conflict, InputRefused, NotFound, Unreachable

#: Sent in one request, and on the server's disk when it is answered.
PART_BYTES = 2**20
READ_BYTES = 4 * 2**20
#: Times that a part is sent again after another one than expected was found.
TRIES = 5

type Note = Callable[[int, int], None]


class VolumePath(NamedTuple):
    """File of a volume."""

    volume: str
    path: str


def parse_volume_path(text: str) -> VolumePath:
    """Read "data:runs/7/model.pt". Raises InputRefused."""
    volume, colon, path = text.partition(":")
    if not colon or not volume or not path.strip("/"):
        raise InputRefused(f'expected VOLUME:PATH such as data:runs/model.pt, found "{text[:80]}"')
    return VolumePath(volume, path.strip("/"))


def put_file(client: Client, source: Path, place: VolumePath, note: Note) -> int:
    """Send a file, or the rest of it, and return its size. `note` gets bytes sent and all bytes. Raises FairleadError."""
    try:
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
            try:
                _send(client, file.fileno(), place, size, digest, note)
            except NotFound:
                # The answer to the last part was lost on its way: then the file is there. Anything else is an error of the path.
                if client.volume_file(place.volume, place.path, digest=True).digest != digest:
                    raise
    except OSError as error:
        raise InputRefused(f"{source}: {error.strerror or error}") from error
    return size


def _send(client: Client, file: int, place: VolumePath, size: int, digest: str, note: Note) -> None:
    upload = client.begin_upload(place.volume, place.path, size, digest)
    offset, tries = upload.offset, 0
    while offset < size:
        try:
            offset = client.send_upload(place.volume, upload.id, offset, os.pread(file, PART_BYTES, offset))
            note(offset, size)
        except Conflict:  # a part was sent twice, since its first answer was lost
            tries += 1
            if tries > TRIES:
                raise
            offset = client.upload(place.volume, upload.id).offset


def get_file(client: Client, place: VolumePath, destination: Path, note: Note) -> int:
    """Fetch a file, or the rest of it, and return its size. Raises FairleadError; what came is kept for the next try."""
    known = client.volume_file(place.volume, place.path, size=1)
    part = destination.with_name(f".{destination.name}.{known.tag[:16]}.fairlead-part")
    try:
        with part.open("ab") as file:
            offset = file.tell()
            while offset < known.size:
                found = client.volume_file(place.volume, place.path, offset, READ_BYTES, tag=known.tag)
                if found.tag != known.tag:
                    part.unlink()
                    raise Unreachable(f"{place.path} was changed while it was fetched", hint="fetch it again")
                offset += file.write(found.data)
                note(offset, known.size)
        whole = client.volume_file(place.volume, place.path, digest=True)
        with part.open("rb") as file:
            if whole.digest != hashlib.file_digest(file, "sha256").hexdigest():
                part.unlink()
                raise Unreachable(f"{place.path} came damaged, or was changed meanwhile", hint="fetch it again")
        part.replace(destination)
    except OSError as error:
        raise InputRefused(f"{error.filename or destination}: {error.strerror or error}") from error
    return known.size
