"""Requests about services and their keys."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fairlead.client.answers import decode, query_of
from fairlead.client.asynchronous.storage import AsyncStorageRequests
from fairlead_schemas.http.api import Page

if TYPE_CHECKING:
    from fairlead_schemas.http.services import NewServiceKey, ServiceChanged, ServiceInfo, ServiceKeyInfo


class AsyncServiceRequests(AsyncStorageRequests):
    """Requests about services."""

    async def services(self) -> "Page[ServiceInfo]":
        """Return the services that one may see."""
        from fairlead_schemas.http.services import ServiceInfo

        return await self._pages("/v1/services", {}, ServiceInfo, 0)

    async def service(self, name: str) -> "ServiceInfo":
        """Return one service. Raises NotFound."""
        from fairlead_schemas.http.services import ServiceInfo

        return decode((await self._get(_path(name))).content, ServiceInfo)

    async def apply_service(self, job: Mapping[str, Any]) -> "ServiceInfo":
        """Submit a service by its job file, or replace the one of its name. Raises InputRefused, Denied, Conflict."""
        from fairlead_schemas.http.services import ServiceInfo

        return decode((await self._post("/v1/services", dict(job))).content, ServiceInfo)

    async def scale_service(self, name: str, replicas: int | str) -> "ServiceInfo":
        """Give a service 3 replicas, or from and to ("0-4"). Raises Denied, InputRefused."""
        from fairlead_schemas.http.services import ServiceInfo

        return decode((await self._post(f"{_path(name)}:scale", {"replicas": replicas})).content, ServiceInfo)

    async def stop_service(self, name: str) -> "ServiceChanged":
        """Stop a service, with all its replicas and keys. Raises Denied."""
        from fairlead_schemas.http.services import ServiceChanged

        return decode((await self._send("DELETE", _path(name))).content, ServiceChanged)

    async def service_keys(self, name: str) -> "Page[ServiceKeyInfo]":
        """Return the keys of a service. Raises Denied."""
        from fairlead_schemas.http.services import ServiceKeyInfo

        return await self._pages(f"{_path(name)}/keys", {}, ServiceKeyInfo, 0)

    async def issue_service_key(
        self, service: str, *, name: str = "", per_minute: int = 0, in_flight: int = 0, expires: str = ""
    ) -> "NewServiceKey":
        """Make a key, whose text is in this answer alone. 0: no bound. Raises Denied."""
        from fairlead_schemas.http.services import NewServiceKey

        fields = {"name": name, "per_minute": per_minute or None, "in_flight": in_flight or None, "expires": expires}
        return decode((await self._post(f"{_path(service)}/keys", query_of(fields))).content, NewServiceKey)

    async def revoke_service_key(self, service: str, key: str) -> "ServiceChanged":
        """Revoke a key by its id. Raises Denied, NotFound."""
        from fairlead_schemas.http.services import ServiceChanged

        path = f"{_path(service)}/keys/{quote(key, safe='')}"
        return decode((await self._send("DELETE", path)).content, ServiceChanged)


def _path(name: str) -> str:
    return f"/v1/services/{quote(name, safe='')}"
