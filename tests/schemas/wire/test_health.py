"""The tables of what is not well: complete, and decided with a reason wherever the sources disagree."""

import pytest

from fairlead_schemas.wire import health
from fairlead_schemas.wire.health import OF_GPUS, OF_NODES, is_code, meaning_of, meaning_of_gpu


def test_every_number_of_the_catalogue_is_decided() -> None:
    """172 rows; each has one of our decisions."""
    assert list(health.xid_catalog()) == list(range(1, 173))
    assert {health.xid_decision(number) for number in health.xid_catalog()} == set(health.XID_DECISIONS)


def test_disputed_or_undecided_codes_have_a_reason() -> None:
    """If NVIDIA gives nothing definite, or other operators differ, our choice is written down with its reason."""
    owed = [
        row.number
        for row in health.xid_catalog().values()
        if health.is_xid_disputed(row) or row.immediate not in health.XID_RULES
    ]
    assert [number for number in owed if not health.XID_OVERRIDES.get(number, ("", ""))[1]] == []
    assert {13, 31, 43, 45, 48, 63, 68, 74, 79, 94, 109} <= set(health.XID_OVERRIDES)


@pytest.mark.parametrize("number", [48, 64, 79, 95, 119, 120])
def test_the_gravest_codes_stop_the_run_and_empty_the_node(number: int) -> None:
    """Every operator agrees about these."""
    assert health.xid_decision(number) == "reboot"
    meaning = meaning_of_gpu(f"xid{number}")
    assert (meaning.fault, meaning.stop, meaning.node, meaning.severity) == (True, True, True, "node")
    assert str(number) in meaning.words


@pytest.mark.parametrize("number", [13, 31, 43, 94])
def test_a_programs_own_error_is_reported_to_its_user(number: int) -> None:
    """The GPU stays in use."""
    assert health.xid_decision(number) == "note"
    assert meaning_of_gpu(f"xid{number}").severity == "note"


def test_an_unknown_code_takes_the_gpu_out_of_use_and_no_more() -> None:
    """A number newer than the catalogue, and a word newer than this version."""
    for code in ("xid999", "brand_new"):
        meaning = meaning_of("GPU-a", code)
        assert (meaning.fault, meaning.stop, meaning.node) == (True, False, False)
    assert meaning_of("", "brand_new").severity == "note"


def test_every_code_says_what_it_is_and_how_it_ends() -> None:
    """For people; and it can be a taint's value."""
    for code, meaning in [*OF_GPUS.items(), *OF_NODES.items()]:
        assert is_code(code) and meaning.words and meaning.returns, code
    assert not any(meaning.fault or meaning.stop for meaning in OF_NODES.values())
