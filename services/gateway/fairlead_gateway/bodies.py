"""Common handling of bodies that hold one thing or a list: their bounds, and errors at their place in the list. Pure."""

import msgspec

from fairlead_gateway.problems import invalid
from fairlead_schemas.units.validation import FieldError, field_error, repeated_keys

ONE_BYTES_MAX = 256 * 1024
LIST_BYTES_MAX = 8 * 1024 * 1024
#: Errors that one answer names.
ERRORS_MAX = 100
HINT = "GET /v1/schemas/job shows the fields of a job file"


def is_list(body: bytes) -> bool:
    """Return True if a body is a JSON list, by its first character."""
    return body[:64].lstrip()[:1] == b"["


def check_count(count: int, most: int) -> None:
    """Raises Refused for a list that is empty or too long."""
    if not 0 < count <= most:
        raise invalid([FieldError(field="", message=f"expected 1 to {most} elements, found {count}")])


def refuse_list(errors: list[FieldError], count: int) -> None:
    """Raises Refused where anything is wrong with a list: then all of it is refused."""
    if errors:
        detail = f"{len(errors)} error{'' if len(errors) == 1 else 's'} in a list of {count}; nothing was stored"
        raise invalid(errors[:ERRORS_MAX], detail=detail)


def repeated_key_errors(body: bytes) -> list[FieldError]:
    """Name each key that an object of valid JSON has more than once; decoders silently take the last."""
    return [
        FieldError(field=path, message="this key stands twice; keep one of them")
        for path in repeated_keys(body)[:ERRORS_MAX]
    ]


def at(index: int, errors: list[FieldError]) -> list[FieldError]:
    """Errors of one element, named at its place."""
    return [inside(f"[{index}]", error) for error in errors]


def inside(where: str, error: FieldError) -> FieldError:
    """An error, named as part of something larger."""
    return FieldError(field=f"{where}.{error.field}" if error.field else where, message=error.message)


def decode_error(error: Exception) -> FieldError:
    """Return the error of a body that cannot be decoded."""
    if isinstance(error, msgspec.MsgspecError):
        return field_error(error)
    return FieldError(field="", message=f"expected JSON in UTF-8 of ordinary depth: {type(error).__name__}")
