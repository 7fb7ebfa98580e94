"""The product's own table against the published ones, and the model of a GPU by its name."""

import csv
from collections import defaultdict

import pytest

from fairlead_placer.mig.layouts import Instance, layouts_of, legal_fault
from fairlead_placer.mig.models import BY_NAME, MODELS, Model, NoMig, find_model, read_product
from fairlead_schemas.units.hardware import is_profile, profile_milli, profile_of, resource_of
from tests.placer.mig.exhaustive import DATA, TABLES
from tests.placer.mig.maximal import maximal_layouts

#: Devices that the named configurations are for, beside those of the published tables.
MORE_DEVICES = {
    "0x232110DE": "H100-94GB",
    "0x233A10DE": "H100-94GB",
    "0x234210DE": "H100-96GB",
    "0x233D10DE": "H100-96GB",
    "0x20B610DE": "H100-96GB",  # an A100 of 96 GB, with the same names
    "0x232910DE": "H100-96GB",
    "0x234810DE": "GH200-144GB",
    "0x294110DE": "GB200-186GB",
    "0x318210DE": "B300-269GB",
    "0x31C210DE": "GB300-278GB",
    "0x2BB510DE": "RTX-PRO-6000-96GB",
}
DEVICES = {device: name for name, table in TABLES.items() for device in table["pci_device_ids"]} | MORE_DEVICES

#: Profiles of named configurations that no model of ours has: RTX PRO 6000's with graphics or special media engines, and those of
#: a GB200 that counts its memory otherwise.
NOT_HELD = {
    "1g.24gb+gfx",
    "1g.24gb+me",
    "1g.24gb+me.all",
    "1g.24gb-me",
    "2g.48gb+gfx",
    "2g.48gb+me.all",
    "2g.48gb-me",
    "4g.96gb+gfx",
    "3g.95gb",
    "4g.95gb",
    "7g.189gb",
}


def named_configurations() -> list[tuple[str, str, dict[str, int]]]:
    """(name, devices it is for, {profile: count}) of each that makes instances."""
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    with (DATA / "mig_parted_named_configs.csv").open() as file:
        for row in csv.DictReader(file):
            if row["profile"]:
                found[row["config"], row["device_filter"]][row["profile"]] = int(row["count"])
    return [(name, devices, counts) for (name, devices), counts in found.items()]


def meant_for(devices: str, counts: dict[str, int]) -> list[Model]:
    """The models of the devices; without devices, every model that has the profiles."""
    if devices:
        return [BY_NAME[name] for name in sorted({DEVICES[device] for device in devices.split("|")})]
    return [model for model in MODELS if counts.keys() <= set(model.profiles)]


@pytest.mark.parametrize("name", TABLES)
def test_a_model_has_the_published_profiles(name: str) -> None:
    """Names, slices, starts, sizes and maxima, all of them and no others."""
    model, table = BY_NAME[name], TABLES[name]
    assert (model.shape.memory, model.shape.compute) == (table["memory_slice_count"], table["compute_slice_count"])
    assert model.profiles == tuple(row["name"] for row in table["profiles"])
    for row in table["profiles"]:
        cut = model.cut(row["name"])
        assert (cut.compute, cut.size, cut.count_max) == (
            row["compute_slices"],
            row["memory_slices"],
            row["max_instances"],
        )
        assert [(start, cut.size) for start in cut.starts] == [(at["start"], at["size"]) for at in row["placements"]]
        assert cut.media == row["name"].endswith("+me")


@pytest.mark.parametrize("name", TABLES)
def test_inferred_models_are_marked(name: str) -> None:
    """The mark agrees with the evidence."""
    assert BY_NAME[name].inferred == ("INFERRED" in TABLES[name]["placement_evidence"])


def test_models_beyond_the_published_tables_are_inferred_except_one() -> None:
    """H100 NVL has a public listing; the others have none."""
    assert {model.name for model in MODELS if not model.inferred} - TABLES.keys() == {"H100-94GB"}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_maxima_follow_from_slices_alone(model: Model) -> None:
    """So rooms need not count instances: as many fit as the driver allows, of each profile, and no more."""
    assert model.profiles
    for index, profile in enumerate(model.profiles):
        fits = [
            count
            for count in range(1, model.shape.memory + 2)
            if any(layouts_of(model, tuple(count if i == index else 0 for i in range(len(model.profiles)))))
        ]
        assert max(fits) == model.cut(profile).count_max


@pytest.mark.parametrize("name", TABLES)
def test_maximal_layouts_are_those_computed_in_the_data(name: str) -> None:
    """Their number, and which profiles they hold; "+me" left out there."""
    model, table = BY_NAME[name], TABLES[name]
    found = maximal_layouts(model, frozenset(profile for profile in model.profiles if profile.endswith("+me")))
    assert len(found) == len(set(found)) == table["maximal_layout_count_computed"]
    assert {tuple(sorted(profile for profile, _ in layout)) for layout in found} == {
        tuple(names) for names in table["maximal_profile_sets_computed"]
    }


def test_without_the_double_memory_slice_an_a100_has_nineteen() -> None:
    """The number that NVIDIA's older guide pictures."""
    left_out = frozenset({"1g.5gb+me", "1g.10gb"})
    assert len(maximal_layouts(BY_NAME["A100-40GB"], left_out)) == 19


@pytest.mark.parametrize(("name", "devices", "counts"), named_configurations())
def test_a_named_configuration_is_legal_on_the_models_it_is_for(
    name: str, devices: str, counts: dict[str, int]
) -> None:
    """It can be laid out on each; nothing more of the same profile fits where it means to fill the GPU."""
    if counts.keys() & NOT_HELD:
        assert not any(counts.keys() & set(model.profiles) for model in MODELS), name
        return
    models = meant_for(devices, counts)
    assert models, name
    for model in models:
        packed = tuple(counts.get(profile, 0) for profile in model.profiles)
        found = next(layouts_of(model, packed), None)
        assert found is not None, (name, model.name)
        assert legal_fault(model, found) == ""
        assert sorted(profile for profile, _ in found) == sorted(p for p, count in counts.items() for _ in range(count))
        if len(counts) == 1:
            (profile,) = counts
            more = tuple(count + (i == model.profiles.index(profile)) for i, count in enumerate(packed))
            assert next(layouts_of(model, more), None) is None, (name, model.name)


# ------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("product", "memory_mib", "model"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"),
        ("NVIDIA-A100-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", 0, "A100-80GB"),
        ("A100-SXM4-40GB-MIG-1g.5gb", 5120, "A100-40GB"),  # as in k8s-device-plugin's documentation
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9856, "A100-80GB"),
        ("NVIDIA-A100-SXM4-40GB-SHARED", 40960, "A100-40GB"),
        ("NVIDIA A800-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA A30", 24576, "A30-24GB"),
        ("NVIDIA-A30-MIG-2g.12gb-SHARED", 11672, "A30-24GB"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB"),
        ("NVIDIA H100 NVL", 95830, "H100-94GB"),
        ("NVIDIA H100 PCIe", 81559, "H100-80GB"),
        ("NVIDIA H200", 143771, "H200-141GB"),
        ("NVIDIA B200", 183359, "B200-180GB"),
        ("NVIDIA GH200 480GB", 97871, "H100-96GB"),  # 480 GB are the processor's
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "RTX-PRO-6000-96GB"),
    ],
)
def test_a_model_is_found(product: str, memory_mib: int, model: str) -> None:
    """As NVML and feature discovery write names."""
    assert find_model(product, memory_mib) == BY_NAME[model]


@pytest.mark.parametrize(
    ("product", "memory_mib", "words"),
    [
        ("Tesla-T4", 15360, ("Tesla-T4", "not a model")),
        ("NVIDIA GeForce RTX 4090", 24564, ("RTX 4090", "not a model")),
        ("NVIDIA A10", 23028, ("A10", "not a model")),  # not an A100
        ("", 0, ("not a model",)),
        ("NVIDIA A100-SXM4", 0, ("A100-40GB or A100-80GB",)),
        ("NVIDIA A100-SXM4-40GB", 61440, ("61440 MiB", "A100-40GB, A100-80GB")),
        ("NVIDIA H100 PCIe", 0, ("H100-80GB or H100-94GB or H100-96GB",)),
        ("NVIDIA GH200 480GB", 0, ("H100-96GB or GH200-144GB",)),
        ("A30-MIG-1g.5gb", 5120, ("profile 1g.5gb", "A30-24GB")),
    ],
)
def test_an_unknown_model_is_not_partitioned_and_the_reason_given(
    product: str, memory_mib: int, words: tuple[str, ...]
) -> None:
    """No guess: a wrong table would make layouts that the driver refuses."""
    found = find_model(product, memory_mib)
    assert isinstance(found, NoMig)
    assert [word for word in words if word not in found.reason] == []


def test_a_product_name_in_its_parts() -> None:
    """The suffixes go, in either spelling."""
    assert read_product("NVIDIA A100-SXM4-40GB MIG 1g.5gb+me") == ("A100-SXM4-40GB", "1g.5gb+me")
    assert read_product(" nvidia-a100-sxm4-40gb ") == ("A100-SXM4-40GB", "")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_profiles_and_resources_name_each_other(model: Model) -> None:
    """Every profile has a resource of its own, without a plus sign, and back."""
    resources = [resource_of(profile) for profile in model.profiles]
    assert [profile_of(resource) for resource in resources] == list(model.profiles)
    assert len(set(resources)) == len(resources) and "+" not in "".join(resources)


def test_other_resources_are_no_profiles() -> None:
    """Both spellings of "+me" are one profile."""
    assert profile_of("nvidia.com/gpu") is None
    assert profile_of("cpu") is None
    assert profile_of("nvidia.com/mig-1g.5gb+me") == profile_of("nvidia.com/mig-1g.5gb.me") == "1g.5gb+me"
    assert resource_of("1g.5gb") == "nvidia.com/mig-1g.5gb"


def test_the_first_layout_has_the_driver_s_order() -> None:
    """Two halves lie as `nvidia-smi mig -cgi 9,9` lays them: the upper one first."""
    model = BY_NAME["A100-40GB"]
    assert next(layouts_of(model, (0, 0, 0, 0, 2, 0, 0))) == (Instance("3g.20gb", 4), Instance("3g.20gb", 0))


def test_a_profile_is_charged_as_the_largest_part_that_it_is_of_any_model() -> None:
    """The charge goes by the name alone, before a GPU is chosen: a GPU that is cut up is never charged as less than it is."""
    profiles = {name for model in MODELS for name in model.profiles}
    assert profiles
    for profile in profiles:
        models = [model for model in MODELS if profile in model.profiles]
        parts = [-(-1000 * model.cut(profile).compute // model.shape.compute) for model in models]
        assert is_profile(profile)
        assert profile_milli(profile) == max(parts), profile
