"""Price table: the price of an hour of a GPU, from a moment on: of a file, and of prices that were set in the log. Pure.

The file is one of comma-separated values, under these heads; `*` is every model that has no row of its own.

    model,per_gpu_hour,currency,valid_from
    NVIDIA-H100-80GB-HBM3,2.49,EUR,2026-01-01
    NVIDIA-H100-80GB-HBM3,2.19,EUR,2026-07-15
    *,1.00,EUR,2026-01-01

A price holds from midnight (UTC) of its day until the same model's next one. Money is counted in millionths, so a price
has six decimal places at most, and nothing is rounded except the amount of a line (`statement.py`).
"""

import csv
from collections.abc import Iterable
from itertools import pairwise, zip_longest
from typing import NamedTuple

from fairlead_schemas.units.money import ANY_MODEL, parse_currency, parse_price, price_text
from fairlead_schemas.units.timestamps import midnight

HEADS = ["model", "per_gpu_hour", "currency", "valid_from"]
ROWS_MAX = 10_000


class PriceTableError(ValueError):
    """A price table cannot be used; the message names the line, the column and what was expected there."""


class GpuPrice(NamedTuple):
    """Price of an hour of one whole GPU from a moment on."""

    micro: int  # millionths of the currency
    currency: str
    from_ns: int  # Unix ns; of a price of the file a midnight in UTC

    @property
    def text(self) -> str:
        """Price as a person writes it: "2.49"."""
        return price_text(self.micro)


class PriceRow(NamedTuple):
    """One price as a row: model, price, currency, and the span in which it holds (Unix ns; None: without an end)."""

    model: str
    per_gpu_hour: str
    currency: str
    from_ns: int
    until_ns: int | None


class Prices:
    """{model: its prices, the oldest first}."""

    def __init__(self, rows: dict[str, list[GpuPrice]]) -> None:
        self._rows = {model: sorted(prices, key=lambda price: price.from_ns) for model, prices in rows.items()}

    def at(self, model: str, at_ns: int) -> GpuPrice | None:
        """The price of a model at a moment; None: it had none. A model with rows of its own never takes `*`'s."""
        found = None
        for price in self._rows.get(model, self._rows.get(ANY_MODEL, [])):
            if price.from_ns <= at_ns:
                found = price
        return found

    def of(self, model: str, begin_ns: int, end_ns: int) -> list[tuple[int, int, GpuPrice | None]]:
        """A time in pieces (begin, end, price), cut where the price of a model changes; none is empty."""
        changes = {price.from_ns for price in self._rows.get(model, self._rows.get(ANY_MODEL, []))}
        moments = [begin_ns, *sorted(at_ns for at_ns in changes if begin_ns < at_ns < end_ns), end_ns]
        return [(begin, end, self.at(model, begin)) for begin, end in pairwise(moments)]

    def extended(self, added: Iterable[tuple[str, int, str, int]]) -> "Prices":
        """Return these and further prices (model, millionths, currency, from when on); of one moment the last one holds."""
        rows = {model: list(prices) for model, prices in self._rows.items()}
        for model, micro, currency, from_ns in added:
            rows.setdefault(model, []).append(GpuPrice(micro, currency, from_ns))
        return Prices(rows)

    def rows(self) -> list[PriceRow]:
        """All prices, by model, then the oldest first."""
        found: list[PriceRow] = []
        for model, prices in sorted(self._rows.items()):
            held = list({price.from_ns: price for price in prices}.values())
            found += [
                PriceRow(model, price.text, price.currency, price.from_ns, later.from_ns if later else None)
                for price, later in zip_longest(held, held[1:])
            ]
        return found


NO_PRICES = Prices({})


def read_prices(text: str) -> Prices:
    """The price table of a file's text. Raises PriceTableError."""
    lines = list(csv.reader(text.splitlines()))
    if not lines or [word.strip() for word in lines[0]] != HEADS:
        found = ",".join(lines[0]) if lines else "nothing"
        raise PriceTableError(f'line 1: expected the heads "{",".join(HEADS)}", found "{found[:80]}"')
    if len(lines) > ROWS_MAX:
        raise PriceTableError(f"expected at most {ROWS_MAX} lines, found {len(lines)}")
    rows: dict[str, list[GpuPrice]] = {}
    for number, cells in enumerate(lines[1:], 2):
        if not any(cell.strip() for cell in cells) or cells[0].lstrip().startswith("#"):
            continue
        if len(cells) != len(HEADS):
            raise PriceTableError(f"line {number}: expected {len(HEADS)} values, found {len(cells)}")
        model, hour, currency, since = (cell.strip() for cell in cells)
        price = GpuPrice(_micro(number, hour), _currency(number, currency), _midnight(number, since))
        earlier = rows.setdefault(_named(number, model), [])
        if any(each.from_ns == price.from_ns for each in earlier):
            raise PriceTableError(f"line {number}, valid_from: {model} has a price from {since} on already; remove one")
        earlier.append(price)
    return Prices(rows)


def _named(number: int, model: str) -> str:
    if not model:
        raise PriceTableError(
            f"line {number}, model: expected a GPU model (as `fairlead usage --by model` names it) or *"
        )
    return model


def _micro(number: int, text: str) -> int:
    try:
        return parse_price(text)
    except ValueError:
        message = f"line {number}, per_gpu_hour: expected a price such as 2.49, at most six decimal places, found {text[:40]!r}"
        raise PriceTableError(message) from None


def _currency(number: int, text: str) -> str:
    try:
        return parse_currency(text)
    except ValueError as error:
        raise PriceTableError(f"line {number}, currency: {error}") from None


def _midnight(number: int, text: str) -> int:
    try:
        return midnight(text)
    except ValueError:
        message = f"line {number}, valid_from: expected a day such as 2026-01-01, found {text[:40]!r}"
        raise PriceTableError(message) from None
