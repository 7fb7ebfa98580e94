"""Names of MIG profiles: how Kubernetes spells them as resources, and what part of a GPU one is charged as.

A profile is named by its compute slices and its memory: "3g.20gb", with "+me" where it has the media engines. Which
GPUs have which profiles is the placer's knowledge; here a name is only a name.
"""

import re

MIG_PREFIX = "nvidia.com/mig-"
#: Compute slices of a GPU that can be cut, by far the most of them.
SLICES = 7
#: Profiles of models with four compute slices (A30, RTX PRO 6000 Blackwell). Where a model of seven has the same name, it
#: is charged as the larger part: a GPU that is cut up is never charged as less than it is.
QUARTERS = frozenset({
    "1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb", "1g.24gb", "2g.48gb", "4g.96gb",
})  # fmt: skip

_NAME = re.compile(r"([1-7])g\.[1-9]\d{0,3}gb(\+me)?\Z", re.ASCII)


def resource_of(profile: str) -> str:
    """Return the Kubernetes resource of a profile: `resource_of("1g.5gb+me") == "nvidia.com/mig-1g.5gb.me"`.

    A resource's name may not contain a plus sign; NVIDIA's device plugin writes a dot.
    """
    return MIG_PREFIX + profile.replace("+", ".")


def profile_of(resource: str) -> str | None:
    """The profile that a resource asks for, None where it is no MIG resource: `nvidia.com/mig-1g.5gb` is "1g.5gb".

    Both spellings of the media engines are taken (".me", "+me"). Whether any GPU has the profile is not looked at.
    """
    if not resource.startswith(MIG_PREFIX):
        return None
    name = resource.removeprefix(MIG_PREFIX)
    return name.removesuffix(".me") + "+me" if name.endswith(".me") else name


def is_profile(name: str) -> bool:
    """True for a well-formed name such as "3g.20gb" or "1g.5gb+me"."""
    return _NAME.match(name) is not None


def profile_milli(profile: str) -> int:
    """milli-GPU that one instance is charged as: its part of a GPU's compute slices, rounded up. A well-formed name."""
    slices = 4 if profile in QUARTERS else SLICES
    return -(-1000 * min(int(profile[0]), slices) // slices)
