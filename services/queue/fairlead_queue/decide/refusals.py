"""A submit that is refused."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """Why a submit is refused."""

    code: str
    message: str
    field: str
