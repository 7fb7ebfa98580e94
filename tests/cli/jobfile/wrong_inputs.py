"""Wrong inputs of tests/data/wrong_inputs.txt: files and HTTP bodies, each with all lines of its refusal."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fairlead.commands import idle, queues
from fairlead.errors import InputRefused
from fairlead.jobfile import reader
from fairlead_gateway.http_messages import decode
from fairlead_gateway.routes import request_bodies
from fairlead_schemas.units.validation import InvalidJob


class WrongInput(NamedTuple):
    """A kind of file, or the type of an HTTP body; a text; and what is said about it."""

    kind: str
    text: str
    mistakes: list[str]


def read(table: str) -> Iterator[WrongInput]:
    """Yield the rows of a table: "# KIND", the text, and a line "=> MISTAKE" for each mistake."""
    for block in table.removeprefix("# ").split("\n# "):
        kind, _, rest = block.partition("\n")
        lines = rest.rstrip().split("\n")
        text = [line for line in lines if not line.startswith("=> ")]
        yield WrongInput(kind, "\n".join(text), [line[3:] for line in lines if line.startswith("=> ")])


_FILES: dict[str, Callable[[str], object]] = {
    "job": lambda text: reader.check_all(reader.load(text, name="file").jobs),
    "queues": lambda text: queues.check(queues.read(text, "file")),
    "policies": lambda text: idle.read(text, "file"),
}


def mistakes(kind: str, text: str) -> list[str]:
    """Return the lines of the refusal without its title; none where the input is accepted."""
    try:
        if kind in _FILES:
            _FILES[kind](text)
        else:
            decode(getattr(request_bodies, kind), text.encode())
    except InputRefused as error:
        return [line.strip() for line in str(error).split("\n")[1:]]
    except InvalidJob as error:
        return [f"{each.field}: {each.message}" for each in error.errors]
    return []
