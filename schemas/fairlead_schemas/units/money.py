"""Prices of an hour of one whole GPU, in millionths of a currency: exact, with six decimal places at most."""

from decimal import Decimal, InvalidOperation

MICRO = 1_000_000
#: A higher price is a typing error.
PRICE_MAX = 1_000_000
#: Matches every model without a price of its own.
ANY_MODEL = "*"


def parse_price(text: str) -> int:
    """Return millionths: `parse_price("2.49") == 2_490_000`. Raises ValueError."""
    try:
        micro = Decimal(text).scaleb(6)
    except InvalidOperation:
        raise ValueError(f"expected a price such as 2.49, found {text[:40]!r}") from None
    if not micro.is_finite() or micro != micro.to_integral_value() or not 0 <= micro <= PRICE_MAX * MICRO:
        raise ValueError(f"expected a price such as 2.49, at most six decimal places, found {text[:40]!r}")
    return int(micro)


def price_text(micro: int) -> str:
    """Return a price as a person writes it: "2.49"."""
    return f"{Decimal(micro).scaleb(-6).normalize():f}"


def parse_currency(text: str) -> str:
    """Return three capitals. Raises ValueError."""
    if len(text) != 3 or not (text.isascii() and text.isalpha() and text.isupper()):
        raise ValueError(f"expected three capitals such as EUR, found {text[:40]!r}")
    return text
