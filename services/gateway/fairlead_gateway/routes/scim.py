"""SCIM 2.0 over HTTP (RFC 7644): Users, Groups, and the documents that describe them, for the directory of an organization.

Every route needs the right to grant roles in the cluster, since members of groups have the groups' roles. Answers and errors have
SCIM's media type and form; they are not part of the OpenAPI document, as /Schemas describes them.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import Depends, Query, Request, Response

from fairlead_gateway.directories.scim import FoundResources, ScimUsers, gone
from fairlead_gateway.directories.scim_errors import MEDIA_TYPE, ScimError
from fairlead_gateway.directories.scim_filter import Filter, parse_filter
from fairlead_gateway.directories.scim_groups import ScimGroups
from fairlead_gateway.directories.scim_patch import names_schema, read_operations
from fairlead_gateway.directories.scim_schema import (
    GROUPS,
    PAGE_MAX,
    USERS,
    Resource,
    ResourceShape,
    provider_config,
    resource_types,
    schema_documents,
)
from fairlead_gateway.errors import JSON
from fairlead_gateway.http_messages import HEAD, LIST_BYTES_MAX, RequestHead, encode, head_of, read_body
from fairlead_gateway.routes.access import require_sign_on
from fairlead_gateway.routes.router import Router, on_cluster
from fairlead_schemas.units.validation import repeated_keys

LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
SEARCH = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"
ROOT = "/scim/v2"
#: Attributes that are in every answer.
_ALWAYS = frozenset({"id", "schemas"})
_RIGHT = on_cluster("rights:grant")

type _Text = Annotated[str, Query()]


def routes(users: ScimUsers, groups: ScimGroups) -> Router:
    """Return the routes."""
    router = Router()
    _add_discovery(router)
    _add_users(router, users)
    _add_groups(router, groups)
    _add_search(router, users, groups)
    return router


def _route(router: Router, method: str, path: str, summary: str) -> Any:
    name = f"scim_{method}_{path.strip('/').replace('/', '_')}".lower()
    decorate = router.api_route(ROOT + path, methods=[method], summary=summary, name=name, include_in_schema=False)
    return router.guarded(_RIGHT, decorate)


# ------------------------------------------------------------------------------- messages


class ScimResponse(Response):
    """Document with SCIM's media type."""

    media_type = MEDIA_TYPE.decode()

    def render(self, content: Any) -> bytes:
        return encode(content)


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/") + ROOT


async def _read(request: Request) -> tuple[RequestHead, Any]:
    """Return head and document of a change. Raise ScimError (400), HttpError."""
    head = require_sign_on(head_of(request))
    body = await read_body(request.scope[HEAD], request.receive, LIST_BYTES_MAX, (MEDIA_TYPE, JSON))
    try:
        document = msgspec.json.decode(body)
        repeated = repeated_keys(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ScimError(400, "invalidSyntax", f"expected JSON in UTF-8: {type(error).__name__}") from None
    if repeated:
        raise ScimError(400, "invalidSyntax", f"{repeated[0][:80]}: this key is given twice")
    return head, document


def _listed(page: FoundResources, start: int) -> Response:
    document: Resource = {
        "schemas": [LIST],
        "totalResults": page.total,
        "startIndex": max(start, 1),
        "itemsPerPage": len(page.items),
        "Resources": page.items,
    }
    return ScimResponse(document)


class _Wanted:
    """Attributes that a client wants to see (RFC 7644, section 3.9)."""

    def __init__(self, shape: ResourceShape, attributes: str, excluded: str) -> None:
        if attributes and excluded:
            raise ScimError(400, "invalidValue", "expected either attributes or excludedAttributes")
        self._shape = shape
        self._only, self._without = self._names(attributes), self._names(excluded)

    def _names(self, text: str) -> dict[str, set[str]]:
        """Return {attribute: its sub-attributes, none for the whole}, in lower case."""
        found: dict[str, set[str]] = {}
        prefix = self._shape.schema.lower() + ":"
        for each in filter(None, (part.strip().lower().removeprefix(prefix) for part in text.split(","))):
            name, _, sub = each.partition(".")
            found.setdefault(name, set()).update({sub} if sub else ())
        return found

    def has(self, name: str) -> bool:
        """Return True if an attribute, in lower case, is shown at least in part."""
        return name in self._only if self._only else self._without.get(name, {""}) != set()

    def of(self, resource: Resource) -> Resource:
        """Return the part of a resource that is wanted."""
        if not self._only and not self._without:
            return resource
        shown = {key: value for key, value in resource.items() if key in _ALWAYS or self.has(key.lower())}
        for key, value in shown.items():
            subs = (self._only or self._without).get(key.lower())
            if subs and key not in _ALWAYS:
                shown[key] = _parts(value, subs, keep=bool(self._only))
        return shown


def _parts(value: Any, subs: set[str], *, keep: bool) -> Any:
    if isinstance(value, list):
        return [_parts(each, subs, keep=keep) for each in value]
    return (
        {name: each for name, each in value.items() if (name.lower() in subs) == keep}
        if isinstance(value, dict)
        else value
    )


def _filter(text: str, shape: ResourceShape) -> Filter | None:
    return parse_filter(text, shape) if text.strip() else None


class _Search(NamedTuple):
    """Query in the body of a POST (RFC 7644, section 3.4.3)."""

    attributes: str
    excluded: str
    filter: str
    start: int
    most: int


async def _read_search(request: Request) -> _Search:
    body = (await _read(request))[1]
    found = {str(key).lower(): value for key, value in body.items()} if isinstance(body, dict) else {}
    if not names_schema(found.get("schemas"), SEARCH):
        raise ScimError(400, "invalidSyntax", f"schemas: expected {SEARCH}")
    names = [found.get(key) or [] for key in ("attributes", "excludedattributes")]
    start, count, chosen = found.get("startindex", 1), found.get("count", PAGE_MAX), found.get("filter", "")
    if not (type(start) is type(count) is int and isinstance(chosen, str) and all(map(_is_texts, names))):
        raise ScimError(400, "invalidSyntax", "expected lists of names, a filter as text, and numbers")
    return _Search(",".join(names[0]), ",".join(names[1]), chosen, start, count)


def _is_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(each, str) for each in found)


# ------------------------------------------------------------------------------- routes


def _add_discovery(router: Router) -> None:
    @_route(router, "GET", "/ServiceProviderConfig", "What the gateway can do of SCIM")
    async def config(request: Request) -> Response:
        return ScimResponse(provider_config(_base(request)))

    def collection(path: str, what: str, documents: Any, summary: str) -> None:
        @_route(router, "GET", path, summary)
        async def listed(request: Request, startIndex: int = 1, count: int = PAGE_MAX, filter: _Text = "") -> Response:  # noqa: N803
            if filter:
                raise ScimError(403, "", f"{path} cannot be filtered")
            found = documents(_base(request))
            return _listed(FoundResources(len(found), found[max(startIndex, 1) - 1 :][: max(count, 0)]), startIndex)

        @_route(router, "GET", path + "/{name}", "One of them")
        async def one(name: str, request: Request) -> Response:
            found = next((each for each in documents(_base(request)) if each["id"] == name), None)
            if found is None:
                raise gone(what, name)
            return ScimResponse(found)

    collection("/Schemas", "schema", schema_documents, "Attributes that are kept")
    collection("/ResourceTypes", "resource type", resource_types, "Types of resources")


def _parts_of(shape: ResourceShape) -> Callable[..., Awaitable[_Wanted]]:
    async def parts(attributes: _Text = "", excludedAttributes: _Text = "") -> _Wanted:  # noqa: N803 -- SCIM's name
        return _Wanted(shape, attributes, excludedAttributes)

    return parts


class _Page(NamedTuple):
    """Part of a collection that is listed."""

    filter: str
    start: int
    most: int | None


async def _read_page(
    filter: _Text = "",
    startIndex: int = 1,  # noqa: N803
    count: int | None = None,
    sortBy: _Text = "",  # noqa: N803 -- known, and without an effect, as RFC 7644 allows
    sortOrder: _Text = "",  # noqa: N803
) -> _Page:
    return _Page(filter, startIndex, count)


async def _head(request: Request) -> RequestHead:
    return require_sign_on(head_of(request))


# What the routes of people and of groups take from a request, in the order in which it is looked at.
_UserParts = Annotated[_Wanted, Depends(_parts_of(USERS))]
_GroupParts = Annotated[_Wanted, Depends(_parts_of(GROUPS))]
_Listed = Annotated[_Page, Depends(_read_page)]
_Change = Annotated[tuple[RequestHead, Any], Depends(_read)]
_Removal = Annotated[RequestHead, Depends(_head)]


def _made(resource: Resource, wanted: _Wanted) -> Response:
    return ScimResponse(wanted.of(resource), 201, {"location": resource["meta"]["location"]})


def _add_users(router: Router, users: ScimUsers) -> None:
    async def answer(user: str, request: Request, wanted: _Wanted) -> Response:
        return ScimResponse(wanted.of(await users.get(user, _base(request))))

    @_route(router, "GET", "/Users", "People, a page at a time")
    async def list_users(request: Request, part: _Listed, wanted: _UserParts) -> Response:
        page = await users.find(_filter(part.filter, USERS), part.start, part.most, _base(request))
        return _listed(FoundResources(page.total, [wanted.of(each) for each in page.items]), part.start)

    @_route(router, "GET", "/Users/{user}", "One person")
    async def get_user(user: str, request: Request, wanted: _UserParts) -> Response:
        return await answer(user, request, wanted)

    @_route(router, "POST", "/Users", "Admit a person, without any role")
    async def create_user(request: Request, wanted: _UserParts, change: _Change) -> Response:
        return _made(await users.get(await users.create(*change), _base(request)), wanted)

    @_route(
        router, "PUT", "/Users/{user}", "Replace a person's attributes; without active the person suspended stays so"
    )
    async def replace_user(user: str, request: Request, wanted: _UserParts, change: _Change) -> Response:
        head, body = change
        await users.replace(head, user, body)
        return await answer(user, request, wanted)

    @_route(router, "PATCH", "/Users/{user}", "Change a person's attributes")
    async def patch_user(user: str, request: Request, wanted: _UserParts, change: _Change) -> Response:
        head, body = change
        await users.patch(head, user, read_operations(body))
        return await answer(user, request, wanted)

    @_route(router, "DELETE", "/Users/{user}", "Suspend a person for good")
    async def remove_user(user: str, head: _Removal) -> Response:
        await users.remove(head, user)
        return Response(status_code=204)


def _add_groups(router: Router, groups: ScimGroups) -> None:
    async def get(group: str, request: Request, wanted: _Wanted) -> Resource:
        return await groups.get(group, _base(request), members=wanted.has("members"))

    async def answer(group: str, request: Request, wanted: _Wanted) -> Response:
        return ScimResponse(wanted.of(await get(group, request, wanted)))

    @_route(router, "GET", "/Groups", "Groups, a page at a time")
    async def list_groups(request: Request, part: _Listed, wanted: _GroupParts) -> Response:
        chosen, members = _filter(part.filter, GROUPS), wanted.has("members")
        page = await groups.find(chosen, part.start, part.most, _base(request), members=members)
        return _listed(FoundResources(page.total, [wanted.of(each) for each in page.items]), part.start)

    @_route(router, "GET", "/Groups/{group}", "One group")
    async def get_group(group: str, request: Request, wanted: _GroupParts) -> Response:
        return await answer(group, request, wanted)

    @_route(router, "POST", "/Groups", "Make a group")
    async def create_group(request: Request, wanted: _GroupParts, change: _Change) -> Response:
        return _made(await get(await groups.create(*change), request, wanted), wanted)

    @_route(router, "PUT", "/Groups/{group}", "Replace a group's name and its members by the directory")
    async def replace_group(group: str, request: Request, wanted: _GroupParts, change: _Change) -> Response:
        head, body = change
        await groups.replace(head, group, body)
        return await answer(group, request, wanted)

    @_route(router, "PATCH", "/Groups/{group}", "Change a group's name and its members by the directory")
    async def patch_group(group: str, request: Request, wanted: _GroupParts, change: _Change) -> Response:
        head, body = change
        await groups.patch(head, group, read_operations(body))
        return await answer(group, request, wanted)

    @_route(router, "DELETE", "/Groups/{group}", "Remove a group of the directory")
    async def remove_group(group: str, head: _Removal) -> Response:
        await groups.remove(head, group)
        return Response(status_code=204)


def _add_search(router: Router, users: ScimUsers, groups: ScimGroups) -> None:
    async def search(request: Request, *shapes: ResourceShape) -> Response:
        """Answer with the resources of each shape in turn, as one list."""
        asked, base, found = await _read_search(request), _base(request), FoundResources(0, [])
        for shape in shapes:
            wanted = _Wanted(shape, asked.attributes, asked.excluded)
            chosen = _filter_or_none(asked.filter, shape, only=len(shapes) == 1)
            if chosen is NOTHING:
                continue
            start, count = max(asked.start, 1) - found.total, min(asked.most, PAGE_MAX) - len(found.items)
            if shape is USERS:
                page = await users.find(chosen, start, count, base)
            else:
                page = await groups.find(chosen, start, count, base, members=wanted.has("members"))
            found = FoundResources(found.total + page.total, found.items + [wanted.of(each) for each in page.items])
        return _listed(found, asked.start)

    @_route(router, "POST", "/.search", "Search people and groups")
    async def search_all(request: Request) -> Response:
        return await search(request, USERS, GROUPS)

    @_route(router, "POST", "/Users/.search", "Search people")
    async def search_users(request: Request) -> Response:
        return await search(request, USERS)

    @_route(router, "POST", "/Groups/.search", "Search groups")
    async def search_groups(request: Request) -> Response:
        return await search(request, GROUPS)


#: Filter about attributes that a type of resource does not have.
NOTHING = Filter(lambda _: False)


def _filter_or_none(text: str, shape: ResourceShape, *, only: bool) -> Filter | None:
    """Return the filter of a search. One about attributes of the other type of resource selects nothing of this type."""
    try:
        return _filter(text, shape)
    except ScimError:
        other = GROUPS if shape is USERS else USERS
        if only or _filter(text, other) is None:
            raise
        return NOTHING
