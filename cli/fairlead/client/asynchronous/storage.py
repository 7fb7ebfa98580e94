"""Requests about storage: classes, volumes and datasets."""

import base64
from typing import TYPE_CHECKING
from urllib.parse import quote

from fairlead.client.answers import FilePart, decode, query_of
from fairlead.client.asynchronous.record import AsyncRecordRequests
from fairlead_schemas.http.api import Page

if TYPE_CHECKING:
    from fairlead_schemas.http.storage import DatasetInfo, StorageChanged, StorageClassInfo, UploadInfo, VolumeInfo


class AsyncStorageRequests(AsyncRecordRequests):
    """Requests about storage. Sizes are bytes, or text such as "10Gi"."""

    async def storage_classes(self) -> "Page[StorageClassInfo]":
        """Return the classes in which volumes can be made."""
        from fairlead_schemas.http.storage import StorageClassInfo

        return await self._pages("/v1/storage-classes", {}, StorageClassInfo, 0)

    async def set_storage_class(
        self, name: str, backend: str, *, volume_max: str | int = 0, user_max: str | int = 0
    ) -> "StorageClassInfo":
        """Set a class and its bounds: of one volume (0: none), and of all volumes of one user (0: users have none). Raises Denied."""
        from fairlead_schemas.http.storage import StorageClassInfo

        body = {"backend": backend, "volumeMax": volume_max, "userMax": user_max}
        return decode((await self._send("PUT", _path("storage-classes", name), json=body)).content, StorageClassInfo)

    async def remove_storage_class(self, name: str) -> "StorageChanged":
        """Remove a class that has no volumes. Raises Conflict."""
        from fairlead_schemas.http.storage import StorageChanged

        return decode((await self._send("DELETE", _path("storage-classes", name))).content, StorageChanged)

    async def volumes(self) -> "Page[VolumeInfo]":
        """Return the volumes that one may read."""
        from fairlead_schemas.http.storage import VolumeInfo

        return await self._pages("/v1/volumes", {}, VolumeInfo, 0)

    async def volume(self, name: str) -> "VolumeInfo":
        """Return one volume. Raises NotFound."""
        from fairlead_schemas.http.storage import VolumeInfo

        return decode((await self._get(_path("volumes", name))).content, VolumeInfo)

    async def create_volume(
        self, name: str, quota: str | int, *, owner: str = "", storage_class: str = ""
    ) -> "VolumeInfo":
        """Make a volume of one's own, or of an owner such as "queue:research". Raises Denied, Conflict."""
        from fairlead_schemas.http.storage import VolumeInfo

        body = {"name": name, "quota": quota, **query_of({"owner": owner, "class": storage_class})}
        return decode((await self._post("/v1/volumes", body)).content, VolumeInfo)

    async def resize_volume(self, name: str, quota: str | int) -> "VolumeInfo":
        """Give a volume another quota. Raises Denied, Conflict."""
        from fairlead_schemas.http.storage import VolumeInfo

        return decode((await self._send("PATCH", _path("volumes", name), json={"quota": quota})).content, VolumeInfo)

    async def delete_volume(self, name: str) -> "StorageChanged":
        """Delete a volume with all that is in it. Raises Denied."""
        from fairlead_schemas.http.storage import StorageChanged

        return decode((await self._send("DELETE", _path("volumes", name))).content, StorageChanged)

    async def begin_upload(self, volume: str, path: str, length: int, digest: str) -> "UploadInfo":
        """Begin to send a file into a volume, or find what was sent of it before. `digest`: its SHA-256 in hex digits. Raises Denied."""
        from fairlead_schemas.http.storage import UploadInfo

        words = {"path": path, "digest": digest}
        metadata = ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in words.items())
        headers = {**_TUS, "Upload-Length": str(length), "Upload-Metadata": metadata}
        return decode(
            (await self._send("POST", f"{_path('volumes', volume)}/uploads", headers=headers)).content, UploadInfo
        )

    async def upload(self, volume: str, upload: str) -> "UploadInfo":
        """Return the progress of an upload. Raises NotFound for one that is whole."""
        from fairlead_schemas.http.storage import UploadInfo

        return decode((await self._get(f"{_path('volumes', volume)}/uploads/{upload}")).content, UploadInfo)

    async def send_upload(self, volume: str, upload: str, offset: int, data: bytes) -> int:
        """Send bytes of an upload from an offset on, and return the next one. Raises Conflict for another offset than the server's."""
        headers = {**_TUS, "Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
        answer = await self._send(
            "PATCH", f"{_path('volumes', volume)}/uploads/{upload}", content=data, headers=headers
        )
        return int(answer.headers.get("Upload-Offset") or offset + len(data))

    async def volume_file(
        self, volume: str, path: str, offset: int = 0, size: int = 1, *, tag: str = "", digest: bool = False
    ) -> FilePart:
        """Return bytes of a file of a volume. `tag`: of the content that is meant; another content is returned from its start.
        `digest`: with the SHA-256 of the whole file. Raises NotFound.
        """
        headers = {"Range": f"bytes={offset}-{offset + size - 1}", **({"If-Range": f'"{tag}"'} if tag else {})}
        if digest:
            headers["Want-Repr-Digest"] = "sha-256=1"
        target = f"{_path('volumes', volume)}/files"
        answer = await self._send("GET", target, query={"path": path}, headers=headers)
        total = (answer.headers.get("Content-Range") or "").rpartition("/")[2] or str(len(answer.content))
        found = (answer.headers.get("Repr-Digest") or "").partition(":")[2].rstrip(":")
        whole = not answer.headers.get("Content-Range")
        return FilePart(
            answer.content,
            int(total),
            (answer.headers.get("ETag") or "").strip('"'),
            base64.b64decode(found).hex(),
            0 if whole else offset,
        )

    async def datasets(self) -> "Page[DatasetInfo]":
        """Return the versions of datasets that one may read."""
        from fairlead_schemas.http.storage import DatasetInfo

        return await self._pages("/v1/datasets", {}, DatasetInfo, 0)

    async def dataset(self, dataset: str) -> "DatasetInfo":
        """Return a version such as "imagenet@2012". Raises NotFound."""
        from fairlead_schemas.http.storage import DatasetInfo

        return decode((await self._get(_path("datasets", dataset))).content, DatasetInfo)

    async def add_dataset(self, dataset: str, digest: str, *, owner: str = "") -> "DatasetInfo":
        """Record a directory that was sent piece by piece as a version of a dataset. Raises Denied, Conflict."""
        from fairlead_schemas.http.storage import DatasetInfo

        body = {"dataset": dataset, "digest": digest, **query_of({"owner": owner})}
        return decode((await self._post("/v1/datasets", body)).content, DatasetInfo)

    async def retire_dataset(self, dataset: str) -> "DatasetInfo":
        """Let no job name a version any more. Raises Denied."""
        from fairlead_schemas.http.storage import DatasetInfo

        return decode((await self._post(f"{_path('datasets', dataset)}:retire", {})).content, DatasetInfo)

    async def dataset_piece(self, dataset: str, digest: str) -> bytes:
        """Return a piece of a version by its SHA-256 in hex digits. Raises NotFound."""
        return (await self._get(f"{_path('datasets', dataset)}/pieces/{digest}")).content


_TUS = {"Tus-Resumable": "1.0.0"}


def _path(kind: str, name: str) -> str:
    return f"/v1/{kind}/{quote(name, safe='@')}"
