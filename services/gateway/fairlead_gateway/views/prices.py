"""The view of prices that were set: for each model and moment the last one."""

from typing import NamedTuple

from fairlead_schemas.wire import events as ev


class SetPriceRow(NamedTuple):
    """Price of an hour of one whole GPU of a model, from a moment on (Unix ns)."""

    model: str
    micro: int
    currency: str
    from_ns: int
    by: str


class PricesView:
    """Prices by model and moment."""

    def __init__(self) -> None:
        #: {(model, Unix ns from which it holds): price}
        self.rows: dict[tuple[str, int], SetPriceRow] = {}
        self.handlers = {ev.PriceSet: self._set}

    def _set(self, event: ev.PriceSet, _seq: int, _at_ns: int) -> None:
        self.rows[event.model, event.from_ns] = SetPriceRow(
            event.model, event.micro, event.currency, event.from_ns, event.by
        )
