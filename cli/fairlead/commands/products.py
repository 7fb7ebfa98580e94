"""Short names of GPU models as the product labels that the cluster's nodes have."""

from typing import Any

from fairlead import gpu_words, jobfile, render
from fairlead.client import Client
from fairlead.errors import Unreachable


def products(client: Client) -> list[str]:
    """Product labels of the cluster's GPU nodes."""
    return [label for node in client.nodes().items if (label := node.labels.get(gpu_words.PRODUCT_LABEL))]


def with_products(job: dict[str, Any], client: Client, *, offline_ok: bool) -> dict[str, Any]:
    """Slurm's short GPU types (`gpu:a100:4`) become the product label that they stand for."""
    selector = job.get("nodeSelector")
    model = selector.get(gpu_words.PRODUCT_LABEL) if isinstance(selector, dict) else None
    if not isinstance(model, str) or model.upper().startswith("NVIDIA-"):
        return job
    try:
        label = gpu_words.product_label(model, lambda: products(client))
    except Unreachable:
        if not offline_ok:
            raise
        render.note(f'warning: "{model}" is not yet a product label, because the cluster cannot be asked')
        return job
    return jobfile.merge(job, {"nodeSelector": {gpu_words.PRODUCT_LABEL: label}})
