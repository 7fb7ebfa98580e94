"""Samples on the bus: encoding and decoding are inverse, and invalid ones are refused by name."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.wire import samples as sc
from fairlead_schemas.wire.samples import GpuSample, RunResources, RunUse, SampleBatch

AT_NS = 1_790_000_000 * 10**9


def numbers(kind: Any) -> st.SearchStrategy[int | None]:
    """Return valid values of a column of this type."""
    return st.none() | st.integers(0, sc._most(kind))


def rows(kind: type[msgspec.Struct], columns: type[msgspec.Struct]) -> st.SearchStrategy[list[Any]]:
    info = msgspec.inspect.type_info(columns)
    assert isinstance(info, msgspec.inspect.StructType)
    optional = {field.name for field in msgspec.structs.fields(kind) if field.default is None}
    fields = {
        field.name: st.text(max_size=8)
        if not sc._most(union)
        else numbers(union)
        if field.name in optional
        else st.integers(0, sc._most(union))
        for field in info.fields
        if (union := field.type if isinstance(field.type, msgspec.inspect.UnionType) else None) or True
    }
    return st.lists(st.builds(kind, **fields), max_size=4)


@given(
    rows(GpuSample, sc.GpuColumns), rows(RunUse, sc.UseColumns), rows(RunResources, sc.ResourceColumns), st.booleans()
)
def test_columns_survive_a_round_trip(
    gpus: list[GpuSample], uses: list[RunUse], resources: list[RunResources], simulated: bool
) -> None:
    """With known and unknown, equal and different values in a column."""
    batch = SampleBatch(
        node="n1", incarnation="a", n=1, at_ns=AT_NS, gpus=gpus, uses=uses, resources=resources, simulated=simulated
    )
    assert batch == sc.decode_samples(sc.encode_samples(batch))


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (GpuSample, sc.GpuColumns),
        (RunUse, sc.UseColumns),
        (RunResources, sc.ResourceColumns),
    ],
)
def test_every_field_has_its_column(kind: type[msgspec.Struct], columns: type[msgspec.Struct]) -> None:
    """A field without a column would be measured in vain."""
    assert sorted(kind.__struct_fields__) == sorted(columns.__struct_fields__)


#: Two GPUs: all but the number of columns, and the columns but for those at the end that nobody knows.
HEAD = "86a17602a46e6f6465a26e31ab696e6361726e6174696f6ea161a16e07a561745f6e73cf18d75b8423f30000a467707573"
COLUMNS = "92a26730a26731a0a0c00192ce000493e0c0"


def test_the_bytes_stay_what_they_are() -> None:
    """Agents and telemetry of different builds must understand each other."""
    assert sc.encode_samples(two_gpus()).hex() == HEAD + "dc0021" + COLUMNS + "c0" * 27


def test_a_build_with_fewer_columns_is_understood() -> None:
    """Missing columns are unknown."""
    assert sc.decode_samples(bytes.fromhex(HEAD + "dc001c" + COLUMNS + "c0" * 22)) == two_gpus()


def two_gpus() -> SampleBatch:
    """Of one of them one number is not known."""
    return SampleBatch(
        node="n1",
        incarnation="a",
        n=7,
        at_ns=AT_NS,
        gpus=[
            GpuSample(uuid="g0", memory_used_mib=1, power_mw=300_000),
            GpuSample(uuid="g1", memory_used_mib=1, power_mw=None),
        ],
    )


def test_a_time_has_millisecond_precision() -> None:
    """So that it takes little room on disk."""
    batch = SampleBatch(node="n1", incarnation="a", n=1, at_ns=AT_NS + 1_999_999)
    assert sc.decode_samples(sc.encode_samples(batch)).at_ns == AT_NS + 1_000_000


def test_a_mad_counter_does_not_cost_the_others() -> None:
    """The driver may say anything; what cannot be is not known."""
    batch = SampleBatch(
        node="n1",
        incarnation="a",
        n=1,
        at_ns=AT_NS,
        gpus=[
            GpuSample(uuid="g", utilization_pct=101, memory_used_mib=7, energy_mj=2**64, temperature_c=-1),
        ],
    )
    told = sc.decode_samples(sc.encode_samples(batch)).gpus[0]
    assert GpuSample(uuid="g", memory_used_mib=7) == told


def told(**changes: Any) -> bytes:
    """Columns of two GPUs, with changes."""
    gpus = {"uuid": ["g0", "g1"], "memory_used_mib": [1, 2], **changes.pop("gpus", {})}
    names = sc.GpuColumns.__struct_fields__
    head = {"v": sc.VERSION, "node": "n1", "incarnation": "a", "n": 1, "at_ns": AT_NS}
    return msgspec.msgpack.encode(
        {
            **head,
            "gpus": [gpus.get(name) if name not in ("parent", "run") else gpus.get(name, "") for name in names],
            **changes,
        }
    )


def test_the_measure_of_what_is_refused_is_good() -> None:
    """Without a change, it is taken."""
    assert [gpu.memory_used_mib for gpu in sc.decode_samples(told()).gpus] == [1, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": {"power_mw": [1]}}, r"\$\.gpus\.power_mw: 1 values for 2 rows"),
        ({"gpus": {"uuid": [], "power_mw": [1]}}, "2 values for 0 rows"),
        ({"gpus": {"utilization_pct": [1, 101]}}, r"<= 100 - at `\$\.gpus\.utilization_pct\["),
        ({"gpus": {"memory_used_mib": [1, -1]}}, ">= 0"),
        ({"gpus": {"energy_mj": [0, 2**60]}}, "<= 9007199254740992"),
        ({"gpus": {"power_mw": 1.5}}, "float"),
        ({"gpus": {"run": "x" * 129}}, "length <= 128"),
        ({"gpus": {"uuid": ["g"] * 1025, "memory_used_mib": 1}}, "1025 rows, expected at most 1024"),
        ({"v": 1}, "version 1 of samples, expected 2"),
        ({"n": 0}, ">= 1"),
        ({"n": 2**64 - 1}, "int"),
        ({"at_ns": -1}, ">= 0"),
        ({"at_ns": 2**63}, "<= 9223372036854775807"),
        ({"more": 1}, "unknown field `more`"),
        ({"uses": [["g"], [], 0, 1, 1]}, r"\$\.uses\.run: 0 values for 1 rows"),
        ({"resources": [["7.1"], [0, 1]]}, r"\$\.resources\.rank: 2 values for 1 rows"),
    ],
)
def test_values_that_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    """The message names the column."""
    with pytest.raises(msgspec.ValidationError, match=words):
        sc.decode_columns(told(**changes))


def test_a_batch_that_is_too_large_is_refused_unread() -> None:
    """Each of its parts may be small."""
    with pytest.raises(msgspec.ValidationError, match=f"expected at most {sc.PAYLOAD_BYTES_MAX}"):
        sc.decode_columns(b"\x90" * (sc.PAYLOAD_BYTES_MAX + 1))


@given(st.binary(max_size=200))
def test_garbage_is_one_kind_of_error(payload: bytes) -> None:
    """No bytes can stop a service."""
    try:
        sc.decode_columns(payload)
    except msgspec.MsgspecError:
        pass


def test_a_batch_too_large_for_the_stream_goes_without_its_runs() -> None:
    """The GPUs' own measurements are not lost with it; one that fits is sent whole."""
    gpus = [GpuSample(uuid=f"GPU-{n}", memory_used_mib=n) for n in range(8)]
    for runs, whole in ((8, True), (1024, False)):
        uses = [RunUse(uuid=f"GPU-{n % 8}", run=f"{n}.1", rank=0, memory_mib=n) for n in range(runs)]
        resources = [RunResources(run=f"{n:0120d}.1", rank=0) for n in range(runs)]
        batch = SampleBatch(node="n1", incarnation="i", n=1, at_ns=AT_NS, gpus=gpus, uses=uses, resources=resources)
        payload, fits = sc.encode_fitting(batch)
        columns = sc.decode_columns(payload)
        assert (fits, columns.uses is not None, columns.gpus is not None) == (whole, whole, True)
