"""A submit that is refused."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """Refusal of a submit, with its reason."""

    code: str
    message: str
    field: str
