"""Classes of storage, volumes and datasets over HTTP. The storage service decides about every change; no file of a volume passes here.

A volume that the caller may not read is answered like one that is not there. Who may read it is a matter of roles: over its owner
(a queue, a project), or at the volume itself (POST /v1/access:grant in volume:NAME). Start at `StorageRoutes`.
"""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec
from fastapi import Request, Response

from fairlead_bus.pieces import PieceDamaged, PieceStore
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.targets import owner_target, volume_target
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import HttpError, bad_field, not_found, rejected
from fairlead_gateway.http_messages import JsonResponse, RequestHead, head_of, read_request
from fairlead_gateway.routes.query import AnyLimit, At, Continue, page_at, page_by_name
from fairlead_gateway.routes.request_bodies import EmptyRequest
from fairlead_gateway.routes.router import Router, in_body, json_content, listed, on_cluster, on_volume
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_gateway.views.storage import StorageClassRow, StoredRow
from fairlead_schemas.http import storage as doc
from fairlead_schemas.http.api import Page
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.policies.storage import (
    ENFORCEMENT,
    Backend,
    StorageWordError,
    VolumeOwner,
    parse_dataset,
    parse_owner,
)
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.quantities import QuantityError, parse_bytes
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import trees

OCTETS = "application/octet-stream"
_BYTES = {"type": "string", "format": "binary"}
VOLUME_VERBS: tuple[Verb, ...] = ("volume:read", "volume:write", "volume:manage")
#: Owner of what its maker names no owner for: the maker.
ME = "me"
#: Field that a refusal of the storage service names at its start.
_FIELD = re.compile(
    r"(name|volume|owner|class|quota|dataset|digest|files|volume_bytes_max|user_bytes_max): (.*)", re.DOTALL
)
_FIELDS = {"volume": "name", "volume_bytes_max": "volumeMax", "user_bytes_max": "userMax"}


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class StorageClassRequest(_Strict, frozen=True, kw_only=True):
    """Body of a class. `volumeMax`: largest quota of one volume, such as "1Ti" (0: no bound); `userMax`: of all of one user's."""

    backend: Backend
    volumeMax: str | int = 0  # noqa: N815 -- the API's spelling
    userMax: str | int = 0  # noqa: N815 -- as above


class VolumeRequest(_Strict, frozen=True, kw_only=True, rename={"class_": "class"}):
    """Body of a new volume. `owner`: "me", "project:llm" or "queue:research"; `class`: may be left out where there is only one."""

    name: str
    quota: str | int
    owner: str = ME
    class_: str = ""


class QuotaRequest(_Strict, frozen=True, kw_only=True):
    """Body of PATCH /v1/volumes/{volume}."""

    quota: str | int


class DatasetRequest(_Strict, frozen=True, kw_only=True):
    """Body of a new version of a dataset. `digest`: the directory that was sent before, as `sync` of a job file names it."""

    dataset: str
    digest: str
    owner: str = ME


class StorageRoutes:
    """Checks of requests, and the commands that they become."""

    def __init__(
        self,
        views: Views,
        past: HistoricalViews,
        gate: CommandPublisher,
        waiter: ResultWaiter,
        accounts: Accounts,
        pieces: PieceStore,
    ) -> None:
        self.views = views
        self.past = past
        self.accounts = accounts
        self.pieces = pieces
        self._gate = gate
        self._waiter = waiter

    async def send(self, head: RequestHead, kind: type[cmd.CommandBase], **fields: object) -> None:
        """Send a command and wait until it is carried out. Raise HttpError, which names the field that was refused."""
        content = [f"{name}={value}" for name, value in sorted(fields.items())]
        command_id = self._waiter.command_id(self._gate, head, kind.__name__, *content)
        command = kind(id=command_id, user=head.user, authority=head.authority, **fields)
        await self._waiter.carry_out(self._gate, command, _refusal)

    async def owner(self, head: RequestHead, text: str) -> str:
        """Return the owner of a body as the log has it, whose things the caller may manage. Raise HttpError."""
        if text == ME:
            return str(VolumeOwner("user", head.user))
        try:
            owner = parse_owner(text)
        except StorageWordError as error:
            raise bad_field("owner", f'{error}, or "{ME}"') from None
        if owner.kind == "user" and not head.caller.is_open:
            owner = owner._replace(name=await self.accounts.people.resolve(owner.name))
        hidden = not_found("queue", owner.name[:80], hint="GET /v1/queues lists them")
        in_queue = owner.kind == "queue"
        head.caller.require(
            "volume:manage",
            owner_target(self.views, str(owner)),
            hidden=hidden if in_queue else None,
            sees="queue:read" if in_queue else None,
        )
        return str(owner)

    def storage_class(self, text: str) -> str:
        """Return the class of a body; the only one where it names none. Raise HttpError (422)."""
        known = sorted(self.views.storage.classes)
        if text in known or (text and not known):
            return text
        if text:
            raise bad_field("class", f"expected one of {', '.join(known[:20])}, found {text[:40]!r}")
        if len(known) == 1:
            return known[0]
        words = (
            f"expected one of {', '.join(known[:20])}" if known else "there is no class of storage: an admin sets one"
        )
        raise bad_field("class", words)

    def seen(self, caller: Caller, rows: Iterable[StoredRow], then: Views) -> dict[str, StoredRow]:
        """Return the rows that the caller may read, by name. `then`: views that the rows are of. What is gone by now is judged as it
        was then, by the rights of now.
        """
        found: dict[str, bool] = {}
        return {row.name: row for row in rows if self._may_read(caller, row.name.partition("@")[0], then, found)}

    def _may_read(self, caller: Caller, name: str, then: Views, found: dict[str, bool]) -> bool:
        if name not in found:
            target = volume_target(self.views, name) or volume_target(then, name)
            found[name] = target is not None and caller.may("volume:read", target)
        return found[name]

    # ------------------------------------------------------------------------------- documents

    def class_document(self, row: StorageClassRow, then: Views | None = None) -> doc.StorageClassInfo:
        """Return the document of a class. `then`: views of a past moment that it is of."""
        return doc.StorageClassInfo(
            name=row.name,
            backend=row.backend,
            quota=ENFORCEMENT[row.backend],
            volume_bytes_max=row.volume_bytes_max or None,
            user_bytes_max=row.user_bytes_max,
            sequence=(then or self.views).sequence,
        )

    def volume_document(self, caller: Caller, name: str, then: Views | None = None) -> doc.VolumeInfo:
        """Return the document of a volume, as of `then` if it is given; `may` has the rights of now. Raise HttpError (404)."""
        views = then or self.views
        row, target = views.storage.volumes.get(name), volume_target(self.views, name) or volume_target(views, name)
        if row is None or target is None:
            raise not_found("volume", name[:80], hint="GET /v1/volumes lists them")
        return doc.VolumeInfo(
            name=row.name,
            owner=row.owner or "cluster",
            owner_name=self._owner_name(row.owner),
            storage_class=row.storage_class,
            quota=ENFORCEMENT[views.storage.classes[row.storage_class].backend],
            quota_bytes=row.quota_bytes,
            created_at=rfc3339(row.at_ns),
            created_by=self.views.name_of(row.by),
            may=[verb for verb in VOLUME_VERBS if caller.may(verb, target)],
            sequence=views.sequence,
        )

    def dataset_row(self, dataset: str, then: Views | None = None) -> StoredRow:
        """Return a version of a dataset, as of `then` if it is given. Raise HttpError (404)."""
        row = (then or self.views).storage.datasets.get(dataset)
        if row is None:
            raise not_found("dataset", dataset[:80], hint="GET /v1/datasets lists them")
        return row

    def dataset_document(self, row: StoredRow, then: Views | None = None) -> doc.DatasetInfo:
        """Return the document of a version of a dataset. `then`: views of a past moment that it is of."""
        name, version = parse_dataset(row.name)
        return doc.DatasetInfo(
            id=row.name,
            name=name,
            version=version,
            owner=row.owner or "cluster",
            owner_name=self._owner_name(row.owner),
            digest=row.digest,
            size_bytes=row.size_bytes,
            files=row.files,
            retired=row.retired,
            added_at=rfc3339(row.at_ns),
            added_by=self.views.name_of(row.by),
            sequence=(then or self.views).sequence,
        )

    def _owner_name(self, owner: str) -> str:
        kind, _, name = owner.partition(":")
        return self.views.name_of(name) if kind == "user" else owner or "cluster"


def routes(storage: StorageRoutes) -> Router:
    """Return all of them."""
    router = Router()
    _add_classes(router, storage)
    _add_volumes(router, storage)
    _add_datasets(router, storage)
    return router


# ------------------------------------------------------------------------------- classes


def _add_classes(router: Router, storage: StorageRoutes) -> None:
    views = storage.views

    @router.read(
        "/v1/storage-classes",
        "List classes of storage, now or at a past moment",
        Page[doc.StorageClassInfo],
        right=listed("volume:read"),
    )
    async def list_storage_classes(limit: AnyLimit = None, next: Continue = "", at: At = "") -> Response:
        then = await page_at(storage.past, at, next)
        rows, token = page_by_name(then.views.storage.classes, limit, next, then)
        items = [storage.class_document(row, then.views) for row in rows]
        return JsonResponse(Page(items=items, next=token, sequence=then.views.sequence), headers=then.headers)

    @router.command(
        "PUT",
        "/v1/storage-classes/{name}",
        "Set a class of storage and its bounds",
        doc.StorageClassInfo,
        right=on_cluster("volume:manage"),
        body=StorageClassRequest,
    )
    async def set_storage_class(name: str, request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, StorageClassRequest)
        _require_name(name)
        bounds = {
            "volume_bytes_max": _bytes("volumeMax", wanted.volumeMax),
            "user_bytes_max": _bytes("userMax", wanted.userMax),
        }
        await storage.send(head, cmd.SetStorageClass, name=name, backend=wanted.backend, **bounds)
        return JsonResponse(storage.class_document(views.storage.classes[name]))

    @router.command(
        "DELETE",
        "/v1/storage-classes/{name}",
        "Remove a class of storage that has no volumes",
        doc.StorageChanged,
        right=on_cluster("volume:manage"),
    )
    async def remove_storage_class(name: str, request: Request) -> Response:
        await storage.send(head_of(request), cmd.RemoveStorageClass, name=name)
        return JsonResponse(doc.StorageChanged(name=name, sequence=views.sequence))


# ------------------------------------------------------------------------------- volumes


def _add_volumes(router: Router, storage: StorageRoutes) -> None:
    views = storage.views

    @router.read(
        "/v1/volumes", "List volumes, now or at a past moment", Page[doc.VolumeInfo], right=listed("volume:read")
    )
    async def list_volumes(request: Request, limit: AnyLimit = None, next: Continue = "", at: At = "") -> Response:
        caller, then = caller_of(request), await page_at(storage.past, at, next)
        known = storage.seen(caller, then.views.storage.volumes.values(), then.views)
        rows, token = page_by_name(known, limit, next, then)
        items = [storage.volume_document(caller, row.name, then.views) for row in rows]
        return JsonResponse(Page(items=items, next=token, sequence=then.views.sequence), headers=then.headers)

    @router.command(
        "POST",
        "/v1/volumes",
        "Make a volume",
        doc.VolumeInfo,
        right=in_body("volume:manage"),
        body=VolumeRequest,
    )
    async def create_volume(request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, VolumeRequest)
        _require_name(wanted.name)
        owner = await storage.owner(head, wanted.owner)
        await storage.send(
            head,
            cmd.CreateVolume,
            volume=wanted.name,
            owner=owner,
            storage_class=storage.storage_class(wanted.class_),
            quota_bytes=_bytes("quota", wanted.quota),
        )
        return JsonResponse(storage.volume_document(head.caller, wanted.name))

    @router.read(
        "/v1/volumes/{volume}",
        "One volume, now or at a past moment",
        doc.VolumeInfo,
        right=on_volume("volume:read"),
    )
    async def get_volume(volume: str, request: Request, at: At = "") -> Response:
        then = await storage.past.moment(at)
        document = storage.volume_document(caller_of(request), volume, then.views)
        return JsonResponse(document, headers=then.headers)

    @router.command(
        "PATCH",
        "/v1/volumes/{volume}",
        "Give a volume another quota",
        doc.VolumeInfo,
        right=on_volume("volume:manage"),
        body=QuotaRequest,
    )
    async def resize_volume(volume: str, request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, QuotaRequest)
        await storage.send(head, cmd.ResizeVolume, volume=volume, quota_bytes=_bytes("quota", wanted.quota))
        return JsonResponse(storage.volume_document(head.caller, volume))

    @router.command(
        "DELETE",
        "/v1/volumes/{volume}",
        "Delete a volume with all that is in it; roles at it end",
        doc.StorageChanged,
        right=on_volume("volume:manage"),
    )
    async def delete_volume(volume: str, request: Request) -> Response:
        await storage.send(head_of(request), cmd.DeleteVolume, volume=volume)
        return JsonResponse(doc.StorageChanged(name=volume, sequence=views.sequence))


# ------------------------------------------------------------------------------- datasets


def _add_datasets(router: Router, storage: StorageRoutes) -> None:
    @router.read(
        "/v1/datasets",
        "List versions of datasets, now or at a past moment",
        Page[doc.DatasetInfo],
        right=listed("volume:read"),
    )
    async def list_datasets(request: Request, limit: AnyLimit = None, next: Continue = "", at: At = "") -> Response:
        then = await page_at(storage.past, at, next)
        known = storage.seen(caller_of(request), then.views.storage.datasets.values(), then.views)
        rows, token = page_by_name(known, limit, next, then)
        items = [storage.dataset_document(row, then.views) for row in rows]
        return JsonResponse(Page(items=items, next=token, sequence=then.views.sequence), headers=then.headers)

    @router.command(
        "POST",
        "/v1/datasets",
        "Add a version of a dataset, from a directory that was sent piece by piece",
        doc.DatasetInfo,
        right=in_body("volume:manage"),
        body=DatasetRequest,
    )
    async def add_dataset(request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, DatasetRequest)
        try:
            parse_dataset(wanted.dataset)
        except StorageWordError as error:
            raise bad_field("dataset", str(error)) from None
        owner = await storage.owner(head, wanted.owner)
        tree = await _tree(storage.pieces, wanted.digest)
        await storage.send(
            head,
            cmd.AddDataset,
            dataset=wanted.dataset,
            owner=owner,
            digest=wanted.digest,
            size_bytes=tree.size,
            files=tree.entries,
        )
        return JsonResponse(storage.dataset_document(storage.dataset_row(wanted.dataset)))

    @router.read(
        "/v1/datasets/{dataset}",
        "One version of a dataset, now or at a past moment",
        doc.DatasetInfo,
        right=on_volume("volume:read", "dataset"),
    )
    async def get_dataset(dataset: str, at: At = "") -> Response:
        then = await storage.past.moment(at)
        document = storage.dataset_document(storage.dataset_row(dataset, then.views), then.views)
        return JsonResponse(document, headers=then.headers)

    @router.command(
        "POST",
        "/v1/datasets/{dataset}:retire",
        "Let no job name a version of a dataset any more",
        doc.DatasetInfo,
        right=on_volume("volume:manage", "dataset"),
        body=EmptyRequest,
        required=False,
    )
    async def retire_dataset(dataset: str, request: Request) -> Response:
        await storage.send(head_of(request), cmd.RetireDataset, dataset=dataset)
        return JsonResponse(storage.dataset_document(storage.dataset_row(dataset)))

    @router.read(
        "/v1/datasets/{dataset}/pieces/{digest}",
        "One piece of a version of a dataset, by its SHA-256; the root piece is that of the dataset's digest",
        right=on_volume("volume:read", "dataset"),
        responses={200: {"description": "The piece", "content": json_content(_BYTES, OCTETS)}},
    )
    async def get_dataset_piece(dataset: str, digest: str) -> Response:
        storage.dataset_row(dataset)
        wanted = trees.parse_digest(digest)
        if wanted is None:
            raise bad_field("digest", f"expected a SHA-256 in 64 lower-case hex digits, found {digest[:80]!r}")
        try:
            data = await storage.pieces.get(wanted)
        except PieceDamaged as error:
            raise HttpError(503, "piece_damaged", str(error), hint="add the dataset again from its files") from None
        if data is None:
            raise not_found("piece", digest, hint="pieces of a retired dataset are kept for some weeks only")
        return Response(data, media_type=OCTETS, headers={"cache-control": "no-store"})


async def _tree(pieces: PieceStore, digest: str) -> trees.Tree:
    """Return the root of a directory that the cluster has. Raise HttpError (422)."""
    wanted = trees.parse_tree_name(digest)
    try:
        data = None if wanted is None else await pieces.get(wanted)
        if data is not None:
            return trees.decode_tree(data)
    except (PieceDamaged, trees.TreeRefused) as error:
        raise bad_field("digest", f"expected a directory: {error}") from None
    raise bad_field(
        "digest",
        f"expected a directory that the cluster has, found {digest[:80]!r}; send it with fairlead datasets add",
    )


# ------------------------------------------------------------------------------- words


def _require_name(name: str) -> None:
    if not is_token(name):
        raise bad_field("name", f"expected 1 to 63 of a-z 0-9 _ -, found {name[:80]!r}")


def _bytes(field: Literal["quota", "volumeMax", "userMax"], text: str | int) -> int:
    """Return the bytes of "10Gi" or a number. Raise HttpError (422)."""
    try:
        return parse_bytes(text)
    except QuantityError as error:
        raise bad_field(field, str(error).replace("a memory quantity", "a size")) from None


def _refusal(outcome: OutcomeRow) -> HttpError:
    """Return the answer to a refused command, with the field that its message names."""
    found = _FIELD.fullmatch(outcome.message)
    if found is None:
        return rejected(outcome.code, outcome.message)
    field = _FIELDS.get(found[1], found[1])
    return rejected(outcome.code, f"{field}: {found[2]}", field)
