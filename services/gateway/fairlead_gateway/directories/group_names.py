"""Names of directories as they can stand in Fairlead: groups and login names of a-z 0-9 _ -. Pure."""

import re

from fairlead_schemas.units.ids import TOKEN_CHARS_MAX, is_token

_SEPARATORS = re.compile(r"[ ./]+")
_OTHERS = re.compile(r"[^a-z0-9_-]+")


def group_name(name: str) -> str:
    """Return the group that a directory's name stands for, "" for one that cannot be made of it: in lower case, with "-" for spaces,
    dots and slashes. Any other change could make two groups one, and so give one the roles of the other.
    """
    found = _SEPARATORS.sub("-", name.strip().lower())
    return found if is_token(found) else ""


def login_name(name: str) -> str:
    """Return a login name like a directory's name of a person, without what follows "@"; "" for one without a single usable
    character. Two people never get the same one: who claims it second gets a number.
    """
    found = _OTHERS.sub("-", name.partition("@")[0].lower()).strip("-_")[:TOKEN_CHARS_MAX]
    return found if is_token(found) else ""
