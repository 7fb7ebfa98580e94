"""GPU shorthand (`H100:8`, `24GB..:2`, `8`) as canonical job file words. Pure."""

import re
from collections.abc import Callable
from typing import Any

from fairlead.errors import InputRefused

PRODUCT_LABEL = "nvidia.com/gpu.product"

_COUNT = re.compile(r"\d{1,4}\Z")
_MEMORY = re.compile(r"(\d{1,4})\s*G(?:i?B)?(\.\.)?\Z", re.IGNORECASE)
_EXPECTED = 'expected a model, a least memory and a count such as "H100:8", "24GB..:2" or "8"'


def gpu_words(text: str, products: Callable[[], list[str]]) -> dict[str, Any]:
    """Parse the value of `--gpu`: `gpu_words("H100:8", …)` gives `resources` and `nodeSelector`, `"24GB..:2"` gives
    `gpu.memory`.

    `products()` lists the product labels of the cluster's nodes: a short model name means the one product that contains it.
    A card sold as 24 GB reports a little less than 24 GiB, so `24GB` requests 24 * 10^9 bytes. Raises Refused when the text
    is not understood or matches several products.
    """
    words: dict[str, Any] = {"resources": {"nvidia.com/gpu": 1}}
    for part in (piece.strip() for piece in text.split(":")):
        if _COUNT.match(part):
            words["resources"] = {"nvidia.com/gpu": int(part)}
        elif match := _MEMORY.match(part):
            words["gpu"] = {"memory": f"{match[1]}G"}
        elif part and ".." not in part:
            words["nodeSelector"] = {PRODUCT_LABEL: product_label(part, products)}
        else:
            raise InputRefused(f'--gpu: {_EXPECTED}, found "{text}"')
    return words


def product_label(model: str, products: Callable[[], list[str]]) -> str:
    """Return the one product label that a model name matches: `a100` is `NVIDIA-A100-SXM4-80GB` where no other product
    matches.
    """
    if model.upper().startswith("NVIDIA-"):
        return model
    known = sorted(set(products()))
    found = [product for product in known if model.lower() in product.lower().split("-")] or [
        product for product in known if model.lower() in product.lower()
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputRefused(
            f'GPU model "{model}" is ambiguous: it matches several products: {", ".join(found)}',
            hint="name one of them in full",
        )
    there = ", ".join(known) or "no GPU at all"
    raise InputRefused(
        f'no node has a GPU whose product contains "{model}"; this cluster has {there}',
        hint="write the full product label to wait for such a node",
    )
