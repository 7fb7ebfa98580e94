"""Request streams of `python -m bench.vectors`: granted is what some legal layout has, worked out from the tables alone."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.vectors import checking as vectors
from bench.vectors.mig import granted
from fairlead_placer.mig.models import BY_NAME
from tests.placer.mig.exhaustive import TABLES, is_legal, multisets, profiles

STREAMS = Path(__file__).parents[2] / "data" / "mig" / "streams.json"
#: Told by hand, beside random ones.
TOLD = [
    ("halves take all memory", "A100-40GB", "3g.20gb 3g.20gb 1g.5gb"),
    ("four and three", "A100-40GB", "3g.20gb 4g.20gb 1g.5gb"),
    ("seven small ones", "A100-40GB", "1g.5gb " * 8),
    ("two twos, then a half", "A100-40GB", "2g.10gb 2g.10gb 3g.20gb"),
    ("a half, then two twos", "A100-40GB", "3g.20gb 2g.10gb 2g.10gb 1g.5gb"),
    ("small ones leave room for a half", "A100-40GB", "1g.5gb 1g.5gb 4g.20gb 1g.5gb"),
    ("one with media engines", "A100-40GB", "1g.5gb+me 1g.5gb+me 1g.5gb"),
    ("a profile of another model", "A100-40GB", "1g.10gb+me 1g.5gb"),
    ("all of it", "H100-80GB", "7g.80gb 1g.10gb"),
    ("double memory", "H100-80GB", "1g.20gb 1g.20gb 1g.20gb 1g.20gb 1g.10gb"),
    ("quarters", "A30-24GB", "1g.6gb 2g.12gb 1g.6gb 1g.6gb"),
]


def oracle(model: str, requests: list[str]) -> list[bool]:
    """Grant each request if some legal layout has it with those granted before it."""
    held, answers = list[str](), list[bool]()
    for profile in requests:
        fits = tuple(sorted([*held, profile])) in multisets(model)
        answers.append(fits)
        held += [profile] if fits else []
    return answers


def cases() -> list[dict[str, Any]]:
    """Return the cases of the file."""
    chance = random.Random(4)
    streams = [(name, model, text.split()) for name, model, text in TOLD]
    for model in TABLES:
        names = sorted(profiles(model))
        small = sorted(names, key=lambda name: int(name[0]))[:4]
        for number in range(8):
            of = small if number % 2 else names
            streams.append((f"{model} random {number + 1}", model, [chance.choice(of) for _ in range(4 + number)]))
    return [
        {"name": name, "gpu": model, "requests": requests, "expect": oracle(model, requests)}
        for name, model, requests in streams
    ]


@pytest.mark.slow
def test_the_file_says_what_some_legal_layout_could_grant(request: pytest.FixtureRequest) -> None:
    """Written again with --update-golden."""
    lines = ",\n".join(json.dumps(case) for case in cases())
    if request.config.getoption("--update-golden"):
        STREAMS.write_text(f'{{"source": "Our own; tests/placer/mig/test_vectors.py", "mig": [\n{lines}\n]}}\n')
    assert json.loads(STREAMS.read_text())["mig"] == cases()


def test_every_stream_is_granted_as_expected() -> None:
    """And the command says so."""
    found = list(vectors.run(vectors.read(STREAMS)))
    assert len(found) == len(cases())
    assert [case.name for case in found if case.expect != case.got] == []


@pytest.mark.parametrize("model", sorted(TABLES))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_stream_ends_in_a_legal_layout_and_grants_what_could_be(model: str, data: st.DataObject) -> None:
    """No instance overlaps another, none is moved, nothing that fits is refused."""
    requests = data.draw(st.lists(st.sampled_from(sorted(profiles(model))), max_size=12))
    answers, layout = granted(BY_NAME[model], requests)
    assert answers == oracle(model, requests)
    assert is_legal(model, tuple(layout.busy))
    assert sorted(instance.profile for instance in layout.busy) == sorted(
        profile for profile, answer in zip(requests, answers, strict=True) if answer
    )


def test_a_long_stream_is_evaluated_in_pieces() -> None:
    """Grants of the first piece stay in place in the next."""
    answers, layout = granted(BY_NAME["A100-40GB"], ["7g.40gb", *["3g.20gb"] * 600])
    assert (answers.count(True), len(layout.busy)) == (1, 1)


def test_an_unknown_gpu_is_a_bad_case(tmp_path: Path) -> None:
    """The message names the known models; a product name is accepted as a model."""
    assert model_named("NVIDIA-A100-SXM4-40GB") == "A100-40GB"
    bad = tmp_path / "bad.json"
    bad.write_text('{"mig": [{"name": "x", "gpu": "V100", "requests": [], "expect": []}]}')
    with pytest.raises(ValueError, match=r'case "x": no MIG on \'V100\'.*expected one of A100-40GB'):
        list(vectors.run(vectors.read(bad)))


def model_named(gpu: str) -> str:
    """The model of a case's GPU."""
    from bench.vectors.mig import model_of

    return model_of(gpu).name
