"""Settings from the environment, read and checked in one way; an invalid setting is refused by name.

An empty value counts as not given. Each module lists the settings that it reads.
"""

from collections.abc import Mapping, Sequence

from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.image_names import Registries, parse_registries


class BadSetting(ValueError):
    """A setting is out of its range; the message names it, what was expected and what was found."""


def one_of(env: Mapping[str, str], name: str, allowed: Sequence[str], default: str) -> str:
    """Return one of a few allowed words, in lower case whatever the environment has. Raises BadSetting."""
    text = env.get(name) or default
    if text.lower() not in allowed:
        raise BadSetting(f'{name}: expected one of {", ".join(allowed)}, found "{text}"')
    return text.lower()


def token(env: Mapping[str, str], name: str, default: str = "") -> str:
    """A word that may be part of a subject or a file name. Raises BadSetting."""
    text = env.get(name)
    if not text:
        return default
    if not is_token(text):
        raise BadSetting(f'{name}: expected 1 to 63 of a-z 0-9 _ -, found "{text}"')
    return text


def number(env: Mapping[str, str], name: str, default: float, *, unit: str, below: float = 1e6) -> float:
    """A number above 0, in `unit`. Raises BadSetting."""
    text = env.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < below:
        raise BadSetting(f'{name}: expected {unit} above 0 and below {below:.0f}, found "{text}"')
    return value


def seconds(env: Mapping[str, str], name: str, default: float) -> float:
    """Seconds above 0. Raises BadSetting."""
    return number(env, name, default, unit="seconds")


def whole(env: Mapping[str, str], name: str, default: int, *, unit: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`, in `unit`. Raises BadSetting."""
    text = env.get(name) or str(default)
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise BadSetting(f'{name}: expected a whole number of {unit} from {least} to {most}, found "{text}"')
    return value


def registries(env: Mapping[str, str]) -> Registries | None:
    """FAIRLEAD_REGISTRIES: the registries that images may come from; None where it is not given. Raises BadSetting."""
    text = env.get("FAIRLEAD_REGISTRIES")
    if not text:
        return None
    try:
        return parse_registries(text)
    except ValueError as error:
        raise BadSetting(f"FAIRLEAD_REGISTRIES: {error}") from error
