"""Attributes of SCIM's users and groups that are kept, as data, and the documents that describe them (RFC 7643, sections 5 to 7).

`read` makes a resource of what a client sent: names are compared without case, read-only attributes and those that are not
kept are left out, and empty ones count as absent. Start at `read`.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from fairlead_gateway.directories.scim_errors import ScimError, bad_value

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Schema"
RESOURCE_TYPE = "urn:ietf:params:scim:schemas:core:2.0:ResourceType"
CONFIG = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
#: Extension whose attributes clients send by default. None of them is kept.
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:user"
#: Resources in an answer.
PAGE_MAX = 200
#: Characters of a text, and values of an attribute of people.
TEXT_CHARS_MAX = 200
VALUES_MAX = 20
#: Attributes of RFC 7643, section 4.1 that are not kept. Others are unknown, and refused in paths.
NOT_KEPT = frozenset(
    [
        "nickname",
        "profileurl",
        "title",
        "usertype",
        "preferredlanguage",
        "locale",
        "timezone",
        "phonenumbers",
        "ims",
        "photos",
        "addresses",
        "entitlements",
        "roles",
        "x509certificates",
        "middlename",
        "honorificprefix",
        "honorificsuffix",
        "display",
    ]
)

type Resource = dict[str, Any]
type Kind = Literal["string", "boolean", "dateTime", "reference", "complex"]


class Attribute(NamedTuple):
    """Attribute with its characteristics (RFC 7643, section 2.2)."""

    name: str
    description: str
    kind: Kind = "string"
    is_many: bool = False
    required: bool = False
    case_exact: bool = False
    mutability: Literal["readOnly", "readWrite", "immutable"] = "readWrite"
    uniqueness: Literal["none", "server"] = "none"
    subs: tuple["Attribute", ...] = ()
    references: tuple[str, ...] = ()
    canonical: tuple[str, ...] = ()

    def sub(self, name: str) -> "Attribute | None":
        """Return a sub-attribute by its name without case."""
        return next((each for each in self.subs if each.name.lower() == name.lower()), None)

    def document(self) -> Resource:
        """Return the attribute as the schema's document states it."""
        found: Resource = {
            "name": self.name,
            "type": self.kind,
            "multiValued": self.is_many,
            "description": self.description,
            "required": self.required,
            "mutability": self.mutability,
            "returned": "default",
        }
        if self.kind in ("string", "reference"):
            found |= {"caseExact": self.case_exact, "uniqueness": self.uniqueness}
        if self.subs:
            found["subAttributes"] = [each.document() for each in self.subs]
        if self.references:
            found["referenceTypes"] = list(self.references)
        if self.canonical:
            found["canonicalValues"] = list(self.canonical)
        return found


class ResourceShape(NamedTuple):
    """Attributes of one type of resource."""

    schema: str
    name: str
    endpoint: str
    description: str
    attributes: tuple[Attribute, ...]

    def attribute(self, name: str) -> Attribute | None:
        """Return an attribute, also one that all resources have, by its name without case."""
        return next((each for each in (*self.attributes, *_COMMON) if each.name.lower() == name.lower()), None)


_COMMON = (
    Attribute("id", "Opaque id.", case_exact=True, mutability="readOnly", uniqueness="server"),
    Attribute("externalId", "Id in the directory.", case_exact=True),
    Attribute("schemas", "Schemas of the resource.", is_many=True, case_exact=True, mutability="readOnly"),
    Attribute(
        "meta", "Facts about the resource.", "complex", mutability="readOnly",
        subs=(
            Attribute("resourceType", "User or Group.", case_exact=True, mutability="readOnly"),
            Attribute("created", "Time of its creation.", "dateTime", mutability="readOnly"),
            Attribute("lastModified", "Time of its last change.", "dateTime", mutability="readOnly"),
            Attribute("location", "Its address.", "reference", case_exact=True, mutability="readOnly", references=("uri",)),
        ),
    ),
)  # fmt: skip

USERS = ResourceShape(
    USER,
    "User",
    "/Users",
    "People",
    (
        Attribute("userName", "Name in the directory; the login name follows from it.", required=True, uniqueness="server"),
        Attribute("displayName", "Name that is shown."),
        Attribute(
            "name", "Parts of the name.", "complex",
            subs=(
                Attribute("formatted", "Whole name."),
                Attribute("familyName", "Family name."),
                Attribute("givenName", "Given name."),
            ),
        ),
        Attribute(
            "emails", "E-mail addresses. People are never known by them.", "complex", is_many=True,
            subs=(
                Attribute("value", "Address."),
                Attribute("type", "Such as work.", canonical=("work", "home", "other")),
                Attribute("primary", "True for the one that counts.", "boolean"),
            ),
        ),
        Attribute("active", "False: the person is suspended.", "boolean"),
        Attribute(
            "groups", "Groups of the directory that the person is in.", "complex", is_many=True, mutability="readOnly",
            subs=(
                Attribute("value", "Id of the group.", case_exact=True, mutability="readOnly"),
                Attribute("$ref", "Address of the group.", "reference", case_exact=True, mutability="readOnly", references=("Group",)),
                Attribute("display", "Name of the group.", mutability="readOnly"),
            ),
        ),
    ),
)  # fmt: skip

GROUPS = ResourceShape(
    GROUP,
    "Group",
    "/Groups",
    "Groups",
    (
        Attribute("displayName", "Name, from which the group's name in grants follows.", required=True, uniqueness="server"),
        Attribute(
            "members", "People of the group by this directory.", "complex", is_many=True,
            subs=(
                Attribute("value", "Id of the person.", case_exact=True, mutability="immutable"),
                Attribute("$ref", "Address of the person.", "reference", case_exact=True, mutability="immutable", references=("User",)),
                Attribute("type", "User.", mutability="immutable", canonical=("User",)),
            ),
        ),
    ),
)  # fmt: skip


# ------------------------------------------------------------------------------- reading


def read(found: Any, shape: ResourceShape) -> Resource:
    """Return the resource that a client sent. Raise ScimError (400) for values of another type and for missing ones."""
    if not isinstance(found, dict):
        raise ScimError(400, "invalidSyntax", "expected a JSON object")
    for key, value in found.items():
        if value is not None:
            refuse_password(str(key), shape)
    kept = (*shape.attributes, _COMMON[1])
    resource = _read_parts({_core(str(key), shape): value for key, value in found.items()}, kept, "")
    for attribute in shape.attributes:
        if attribute.required and attribute.name not in resource:
            raise bad_value(f"{attribute.name}: expected a value")
    return resource


def refuse_password(name: str, shape: ResourceShape) -> None:
    """Raise ScimError (400) for the name of a password: one that was taken and not kept would count as set in the directory."""
    if _core(name, shape).lower() == "password":
        raise bad_value("password: a directory sets no passwords here; turn off its synchronization of passwords")


def _core(name: str, shape: ResourceShape) -> str:
    """Return an attribute's name without the URN of its schema."""
    prefix = shape.schema.lower() + ":"
    return name[len(prefix) :] if name.lower().startswith(prefix) else name


def _read_parts(found: Mapping[Any, Any], attributes: tuple[Attribute, ...], where: str) -> Resource:
    by_name = {each.name.lower(): each for each in attributes}
    result: Resource = {}
    for key, value in found.items():
        attribute = by_name.get(str(key).lower())
        if attribute is None or attribute.mutability == "readOnly" or value is None or value in ([], {}):
            continue
        result[attribute.name] = read_value(value, attribute, where + attribute.name)
    return result


def read_value(value: Any, attribute: Attribute, where: str) -> Any:
    """Return a value of an attribute, a list of one with several. Raise ScimError (400)."""
    if not attribute.is_many:
        return _read_one(value, attribute, where)
    values: list[Any] = value if isinstance(value, list) else [value]
    if attribute.name != "members" and len(values) > VALUES_MAX:
        raise bad_value(f"{where}: expected at most {VALUES_MAX} values, found {len(values)}")
    read_ones = [_read_one(each, attribute, where) for each in values]
    primaries = [each for each in read_ones if isinstance(each, dict) and each.get("primary")]
    for each in primaries[:-1]:  # the newest counts, as RFC 7644, section 3.5.2 demands of a change
        each["primary"] = False
    return read_ones


def _read_one(value: Any, attribute: Attribute, where: str) -> Any:
    match attribute.kind:
        case "complex":
            if isinstance(value, str) and attribute.sub("value"):
                value = {"value": value}
            if isinstance(value, dict):
                return _read_parts(value, attribute.subs, where + ".")
        case "boolean":
            if isinstance(value, str) and value.lower() in ("true", "false"):  # as Entra ID sends it
                return value.lower() == "true"
            if isinstance(value, bool):
                return value
        case _:
            if isinstance(value, str):
                return _text(value, where)
    raise bad_value(f"{where}: expected {'an object' if attribute.kind == 'complex' else f'a {attribute.kind}'}")


def _text(value: str, where: str) -> str:
    if len(value) > TEXT_CHARS_MAX or not value.isprintable():
        raise bad_value(f"{where}: expected one line of at most {TEXT_CHARS_MAX} characters")
    return value


# ------------------------------------------------------------------------------- documents


def schema_documents(base: str) -> list[Resource]:
    """Return the documents of /Schemas."""
    return [
        {
            "schemas": [SCHEMA],
            "id": shape.schema,
            "name": shape.name,
            "description": shape.description,
            "attributes": [each.document() for each in shape.attributes],
            "meta": {"resourceType": "Schema", "location": f"{base}/Schemas/{shape.schema}"},
        }
        for shape in (USERS, GROUPS)
    ]


def resource_types(base: str) -> list[Resource]:
    """Return the documents of /ResourceTypes."""
    return [
        {
            "schemas": [RESOURCE_TYPE],
            "id": shape.name,
            "name": shape.name,
            "description": shape.description,
            "endpoint": shape.endpoint,
            "schema": shape.schema,
            "meta": {"resourceType": "ResourceType", "location": f"{base}/ResourceTypes/{shape.name}"},
        }
        for shape in (USERS, GROUPS)
    ]


def provider_config(base: str) -> Resource:
    """Return the document of /ServiceProviderConfig."""
    return {
        "schemas": [CONFIG],
        "patch": {"supported": True},
        "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": 0},
        "filter": {"supported": True, "maxResults": PAGE_MAX},
        "changePassword": {"supported": False},
        "sort": {"supported": False},
        "etag": {"supported": False},
        "authenticationSchemes": [
            {
                "type": "oauthbearertoken",
                "name": "Token",
                "description": "A token of a principal that may grant roles in the cluster, as a bearer token (RFC 6750).",
                "primary": True,
            }
        ],
        "meta": {"resourceType": "ServiceProviderConfig", "location": f"{base}/ServiceProviderConfig"},
    }
