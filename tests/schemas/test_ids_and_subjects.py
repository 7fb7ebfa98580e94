"""Names that become parts of subjects, file names and container names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.units.ids import array_of, element_id, is_job_id, is_queue_path, is_token
from fairlead_schemas.wire import subjects

TOKENS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)
JOBS = st.from_regex(r"[1-9][0-9]{0,8}(_[0-9]{1,5})?", fullmatch=True)


@pytest.mark.parametrize("text", ["n7", "sim-1", "a_b", "0", "a" * 63])
def test_tokens(text: str) -> None:
    """Lower case letters, digits, underscore and dash, up to 63."""
    assert is_token(text)


@pytest.mark.parametrize("text", ["", "A", "a.b", "a b", "-a", "_a", "a/b", "a*", "a>", "ä", "a\n", "a" * 64])
def test_no_tokens(text: str) -> None:
    """Nothing that a subject, a path or a shell would read as more than a name."""
    assert not is_token(text)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("1", True),
        ("812", True),
        ("812_3", True),
        ("0", False),
        ("012", False),
        ("812_", False),
        ("_3", False),
        ("812_3_4", False),
        ("812.3", False),
        ("last", False),
        ("1\n", False),
        ("9" * 19, False),
        ("", False),
    ],
)
def test_job_ids(text: str, good: bool) -> None:
    """A positive decimal without leading zero, and an index for an array's element."""
    assert is_job_id(text) is good


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("default", True),
        ("research/vision", True),
        ("/".join("abcdefgh"), True),
        ("/".join("abcdefghi"), False),
        ("", False),
        ("/", False),
        ("a//b", False),
        ("a/", False),
        ("A/b", False),
        ("a.b", False),
    ],
)
def test_queue_paths(text: str, good: bool) -> None:
    """Tokens joined by slashes, at most eight."""
    assert is_queue_path(text) is good


@given(st.integers(1, 10**9), st.integers(0, 10**6))
def test_an_element_names_its_array(array: int, index: int) -> None:
    """array_of is the inverse of element_id, and an element's id is a job id."""
    job = element_id(str(array), index)
    assert (is_job_id(job), array_of(job), array_of(str(array))) == (True, str(array), None)


@given(TOKENS, JOBS)
def test_output_subjects_come_back(node: str, job: str) -> None:
    """The node can be read out of an output subject; its own filter and exactly one stored shard cover it."""
    subject = subjects.output(node, job)
    assert subjects.node_of_output(subject) == node
    assert covers(subjects.outputs_of_node(node), subject) and covers(subjects.OUTPUT_ALL, subject)
    assert sum(covers(shard, subject) for shard in subjects.output_shards()) == 1
    assert subjects.outputs_of_job(job, [node, "other", node]) == (subject, subjects.output("other", job))


def test_output_subjects_are_spread() -> None:
    """They are a fixed number whatever jobs a key invents, and jobs in a row seldom share one."""
    of_many = {subjects.output("n1", str(job)) for job in range(1, 5000)}
    assert len(of_many) == subjects.OUTPUT_SHARDS == len(subjects.output_shards())
    assert len({subjects.output("n1", str(job)) for job in range(100, 116)}) > 8


@given(TOKENS)
def test_node_subjects_come_back(node: str) -> None:
    """node_of reads the node out of each subject that carries one, and the wildcards cover it."""
    for make, pattern in (
        (subjects.report, subjects.REPORTS),
        (subjects.beat, subjects.BEATS),
        (subjects.sample, subjects.SAMPLE_ALL),
    ):
        assert subjects.node_of(make(node)) == node
        assert covers(pattern, make(node))
    assert subjects.node_of(subjects.confirm(node)) == node


def test_each_writer_has_a_subject_of_its_own() -> None:
    """The fence is per subject: two writers never share one."""
    assert [subjects.writer_of(subjects.log(writer)) for writer in subjects.WRITERS] == list(subjects.WRITERS)
    assert all(covers(subjects.LOG_ALL, subjects.log(writer)) for writer in subjects.WRITERS)
    assert all(covers(subjects.CMD_ALL, subjects.cmd(writer)) for writer in subjects.WRITERS)


def covers(pattern: str, subject: str) -> bool:
    """NATS' rule: `*` is one token, `>` is one or more at the end."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, found = wanted[:-1], found[: len(wanted) - 1] if len(found) >= len(wanted) else []
    return len(wanted) == len(found) and all(w in ("*", f) for w, f in zip(wanted, found, strict=True))
