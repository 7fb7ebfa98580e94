"""Record of access over HTTP: sign-ins, denials, and who looked into what is one's own."""

from typing import Annotated

from fastapi import Query, Request, Response

from fairlead_bus.port import Bus
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.audit_reader import ENTRIES_MAX, EntryPlace, read_history
from fairlead_gateway.access.caller import CLUSTER
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.errors import bad_field
from fairlead_gateway.http_messages import JsonResponse
from fairlead_gateway.routes import grammar
from fairlead_gateway.routes.access import require_signed_in
from fairlead_gateway.routes.router import SIGNED_IN, Router
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import access as doc
from fairlead_schemas.units.timestamps import parse_rfc3339, rfc3339
from fairlead_schemas.wire.access_records import UNKNOWN, AccessEntry

#: Names that stand for the caller, and for what has no principal: sign-ins under unknown names.
ME, NOBODY = "me", "unknown"
_FOREVER_NS = 2**63 - 1


def routes(views: Views, bus: Bus, accounts: Accounts) -> Router:
    """Return the one route."""
    router = Router()

    @router.read(
        "/v1/audit/access",
        "Record of access of a principal: its sign-ins, denials, and reads of what is its own by others",
        doc.RecordOfAccess,
        right=SIGNED_IN,
    )
    async def list_access_records(
        request: Request,
        about: Annotated[
            str, Query(description='"me", a login name or id (needs audit:read on the cluster), or "unknown".')
        ] = ME,
        begin: Annotated[str, Query(alias="from", json_schema_extra=grammar.TIME, description="RFC 3339 time.")] = "",
        to: Annotated[str, Query(json_schema_extra=grammar.TIME, description="RFC 3339 time.")] = "",
        limit: Annotated[int, Query(ge=1, le=ENTRIES_MAX, description="Items per page.")] = ENTRIES_MAX,
        next: Annotated[
            str,
            Query(
                alias="continue",
                json_schema_extra={"pattern": r"^([0-9]{1,18}\.[0-9]{1,9})?$"},
                description="The `next` of the page before.",
            ),
        ] = "",
    ) -> Response:
        caller = require_signed_in(caller_of(request))
        person = (
            caller.principal if about == ME else UNKNOWN if about == NOBODY else await accounts.people.resolve(about)
        )
        if person != caller.principal:
            caller.require("audit:read", CLUSTER)
        found = await read_history(
            bus,
            person,
            since_ns=_moment("from", begin),
            until_ns=_moment("to", to) or _FOREVER_NS,
            before=_place(next),
            entries_max=limit,
        )
        items = [await _item(accounts, entry) for entry in found.entries]
        following = f"{found.next.record}.{found.next.entry}" if found.next else None
        return JsonResponse(
            doc.RecordOfAccess(items=items, sequence=views.sequence, broken=found.broken, next=following)
        )

    return router


async def _item(accounts: Accounts, entry: AccessEntry) -> doc.RecordedAccess:
    return doc.RecordedAccess(
        at=rfc3339(entry.at_ns),
        kind=entry.kind,
        principal=entry.principal,
        login=await accounts.people.name_of(entry.principal) if entry.principal else "",
        via=entry.via,
        verb=entry.verb,
        target=entry.target,
        owner=entry.owner,
        address=entry.address,
        count=entry.count,
    )


def _place(token: str) -> EntryPlace | None:
    record, _, index = token.partition(".")
    try:
        return EntryPlace(int(record), int(index)) if token else None
    except ValueError:
        raise bad_field("continue", "expected the unchanged `next` of the previous page") from None


def _moment(name: str, text: str) -> int:
    try:
        return parse_rfc3339(text.replace(" ", "+")) if text else 0
    except ValueError:
        raise bad_field(name, f'expected an RFC 3339 time with zone, found "{text[:40]}"') from None
