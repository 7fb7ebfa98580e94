"""Queue files: every mistake is named at its path, all at once; what is read can be written and read again."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.policies.rights import ROLES
from fairlead_schemas.queuefile.amounts import counted, is_are
from fairlead_schemas.queuefile.parse import InvalidQueues, queue_file, read_queue_file, read_settings
from fairlead_schemas.queuefile.settings import (
    CHANGES_MAX,
    PACKINGS,
    Ageing,
    Budget,
    PoolEntry,
    PoolSettings,
    Preemption,
    QueueEntry,
    QueueSettings,
)
from fairlead_schemas.queuefile.settings_format import QUEUE_ROLES, QueueRole, role_words
from fairlead_schemas.units.timestamps import HOUR_NS
from fairlead_schemas.units.validation import decode_object

A100 = "NVIDIA-A100-SXM4-80GB"
GPU = "nvidia.com/gpu"


def errors_of(value: Any) -> dict[str, str]:
    """{path: message} of a file that must be refused."""
    with pytest.raises(InvalidQueues) as caught:
        read_queue_file(value)
    return {error.field: error.message for error in caught.value.errors}


def queue_errors(**fields: Any) -> dict[str, str]:
    """Mistakes of one queue, by the path behind "queues.q."."""
    found = errors_of({"queues": {"q": fields}})
    return {path.removeprefix("queues.q."): message for path, message in found.items()}


def pool_errors(**fields: Any) -> dict[str, str]:
    """Mistakes of one pool, by the path behind "pools.p."."""
    found = errors_of({"pools": {"p": fields}})
    return {path.removeprefix("pools.p."): message for path, message in found.items()}


def test_fields_become_integers() -> None:
    """Every field of the file, in the log's units; nested and flat paths; parents before children."""
    file = {
        "pools": {
            "a100": {
                "sequencer": "fairshare", "ageing": {"every": "1h", "most": 20}, "patience": "10m", "halfLife": "14d",
                "pastPercent": 50, "users": ["ada"], "projects": ["llm"], "prices": {A100: 2.5, "NVIDIA-L4": "0.3"},
                "defragment": True, "packing": "most_allocated",
            },
        },
        "queues": {
            "research/vision/small": {"weight": 3},
            "research": {
                "pool": "a100",
                "guaranteed": {GPU: 16, "cpu": 256, "memory": "2Ti", f"{GPU}:{A100}": 8},
                "maximum": {GPU: "64", "cpu": "0.5"} | {"cpu": 512},
                "borrowing": {GPU: 32, "memory": 0}, "lending": {"cpu": "500m"}, "weight": 2, "priority": 1,
                "users": {"default": {GPU: 8}, "ada": {GPU: 16}, "bob": {}},
                "budget": {"gpuHours": 1000, "period": "week", "whenSpent": "demote"},
                "preemption": {"reclaim": "lower_priority", "rebalance": True, "lowerPriority": False, "protect": "10m"},
                "queues": {"vision": {}, "speech": None},
            },
        },
    }  # fmt: skip
    found = read_queue_file(file)
    pool = PoolSettings(
        sequencer="fairshare",
        ageing=Ageing(every_ns=HOUR_NS, most=20),
        patience_ns=HOUR_NS // 6,
        half_life_ns=14 * 24 * HOUR_NS,
        past_percent=50,
        users=("ada",),
        projects=("llm",),
        prices={A100: 2500, "NVIDIA-L4": 300},
        defragment=True,
        packing="most_allocated",
    )
    research = QueueSettings(
        pool="a100", guaranteed={"gpu": 16_000, "cpu": 256_000, "memory": 2 * 2**20, f"gpu:{A100}": 8000},
        maximum={"gpu": 64_000, "cpu": 512_000}, borrowing={"gpu": 32_000, "memory": 0}, lending={"cpu": 500},
        weight=2, priority=1, users={"*": {"gpu": 8000}, "ada": {"gpu": 16_000}, "bob": {}},
        budget=Budget(gpu_milli_s=3_600_000_000, period="week", when_spent="demote"),
        preemption=Preemption(
            reclaim="lower_priority", rebalance=True, lower_priority=False, protect_ns=HOUR_NS // 6
        ),
    )  # fmt: skip
    assert found.pools == (PoolEntry(pool="a100", settings=pool),)
    assert found.queues == (
        QueueEntry(path="research", settings=research),
        QueueEntry(path="research/speech", settings=QueueSettings()),
        QueueEntry(path="research/vision", settings=QueueSettings()),
        QueueEntry(path="research/vision/small", settings=QueueSettings(weight=3)),
    )


#: (fields of queue q, path of the one mistake, what the message must hold)
QUEUE_MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"wieght": 2}, "wieght", "did you mean weight?"),
    ({"gpuQuota": 8}, "gpuQuota", "unknown field"),
    ({"guaranteed": {"gpu": 8}}, "guaranteed.gpu", "unknown resource; expected one of nvidia.com/gpu"),
    ({"guaranteed": {"shm": "1Gi"}}, "guaranteed.shm", "unknown resource"),
    ({"guaranteed": {f"{GPU}:": 8}}, f"guaranteed.{GPU}:", "unknown resource"),
    ({"guaranteed": {f"{GPU}:A 100": 8}}, f"guaranteed.{GPU}:A 100", "unknown resource"),
    ({"guaranteed": {GPU: -1}}, f"guaranteed.{GPU}", 'a whole number of GPUs such as 8, found "-1"'),
    ({"guaranteed": {GPU: 0.5}}, f"guaranteed.{GPU}", 'a whole number of GPUs such as 8, found "0.5"'),
    ({"guaranteed": {GPU: "0.5"}}, f"guaranteed.{GPU}", "a whole number of GPUs"),
    ({"guaranteed": {GPU: True}}, f"guaranteed.{GPU}", 'found "true"'),
    ({"guaranteed": {GPU: None}}, f"guaranteed.{GPU}", 'found "null"'),
    ({"guaranteed": {GPU: 10**12}}, f"guaranteed.{GPU}", "at most 999999 GPUs"),
    ({"guaranteed": {"cpu": "many"}}, "guaranteed.cpu", 'a CPU quantity such as "8", "0.5" or "500m", found "many"'),
    ({"guaranteed": {"memory": "2TB"}}, "guaranteed.memory", 'a memory quantity such as "64Gi" or "512Mi", found "2TB"'),
    ({"guaranteed": {"memory": "9" * 500}}, "guaranteed.memory", "a memory quantity"),
    ({"guaranteed": 8}, "guaranteed", 'expected a map of names and values, found "8"'),
    ({"guaranteed": None}, "guaranteed", 'expected a map of names and values, found "null"'),
    ({"guaranteed": {GPU: 16}, "maximum": {GPU: 8}}, f"maximum.{GPU}", "expected at least what is guaranteed (16), found 8; raise it, or lower guaranteed"),
    ({"guaranteed": {"memory": "2Ti"}, "maximum": {"memory": "1Ti"}}, "maximum.memory", "(2Ti), found 1Ti"),
    ({"guaranteed": {f"{GPU}:{A100}": 8}, "maximum": {GPU: 4}}, f"guaranteed.{GPU}:{A100}", "expected at most maximum.nvidia.com/gpu (4), found 8"),
    ({"guaranteed": {GPU: 4}, "lending": {GPU: 5}}, f"lending.{GPU}", "expected at most what is guaranteed (4), found 5"),
    ({"guaranteed": {"cpu": 0}, "lending": {"cpu": "500m"}}, "lending.cpu", "expected at most what is guaranteed (0), found 500m"),
    ({"weight": 0}, "weight", 'expected a whole number from 1 to 1000000, found "0"; to let others go first, give it a lower priority'),
    ({"guarantee": {}}, "guarantee", "did you mean guaranteed?"),
    ({"weight": -2}, "weight", "from 1 to"),
    ({"weight": 1.5}, "weight", 'expected a whole number, found 1.5'),
    ({"weight": "2"}, "weight", 'expected a whole number, found "2"; write it without quotes: 2'),
    ({"weight": True}, "weight", 'expected a whole number, found true'),
    ({"priority": -1001}, "priority", "from -1000 to 1000"),
    ({"priority": 1001}, "priority", "from -1000 to 1000"),
    ({"pool": "Big Pool"}, "pool", 'expected 1 to 63 of a-z 0-9 _ -, found "Big Pool"'),
    ({"pool": 7}, "pool", 'expected a word, found 7; put it in quotes: "7"'),
    ({"users": {"Ada!": {GPU: 1}}}, "users.Ada!", 'expected a user (1 to 63 of a-z 0-9 _ -) or "default"'),
    ({"users": {"ada": {GPU: "x"}}}, f"users.ada.{GPU}", "a whole number of GPUs"),
    ({"users": {"ada": 8}}, "users.ada", "expected a map"),
    ({"users": ["ada"]}, "users", "expected a map"),
    ({"budget": {}}, "budget.gpuHours", "required field is missing"),
    ({"budget": {"gpuHours": 0}}, "budget.gpuHours", "expected more than 0 GPU-hours"),
    ({"budget": {"gpuHours": -1}}, "budget.gpuHours", 'expected a number from 0 on with at most three decimals such as 2.5, found "-1"'),
    ({"budget": {"gpuHours": 1, "period": "decade"}}, "budget.period", 'expected one of day, week, month, year, found "decade"'),
    ({"budget": {"gpuHours": 1, "whenSpent": "kill"}}, "budget.whenSpent", "expected one of refuse, demote"),
    ({"budget": {"gpuHours": 1, "currency": "EUR"}}, "budget.currency", "unknown field; expected gpuHours, period, whenSpent"),
    ({"preemption": {"reclaim": "always"}}, "preemption.reclaim", "expected one of any, lower_priority, never"),
    ({"preemption": {"rebalance": "yes"}}, "preemption.rebalance", 'expected true or false, found "yes"'),
    ({"preemption": {"protect": "soon"}}, "preemption.protect", 'expected a duration such as "90s"'),
    ({"preemption": None}, "preemption", "expected a map"),
    ({"queues": {"": {}}}, "queues.", 'expected names of a-z 0-9 _ - (at most 63) joined by "/", found ""'),
    ({"queues": {"A": {}}}, "queues.A", "expected names of a-z"),
    ({"queues": {"a//b": {}}}, "queues.a//b", "expected names of a-z"),
    ({"queues": {"a": {"weight": 0}}}, "queues.a.weight", "from 1 to"),
    ({"queues": {"a": {"pool": "a100"}}}, "queues.a.pool", 'expected none, or "default" as q has it, found "a100"; leave it out, or change queues.q.pool'),
    ({"queues": ["a"]}, "queues", "expected a map"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "path", "message"), QUEUE_MISTAKES, ids=lambda value: str(value)[:50])
def test_a_mistake_of_a_queue_is_named(fields: dict[str, Any], path: str, message: str) -> None:
    """One mistake, one error, at the path as it was written."""
    found = queue_errors(**fields)
    assert list(found) == [path]
    assert message in found[path]


#: As above, for pool p.
POOL_MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"sequencr": "drf"}, "sequencr", "unknown field; expected sequencer, ageing"),
    ({"sequencer": ""}, "sequencer", 'expected a name such as "drf"'),
    ({"sequencer": None}, "sequencer", "expected a word, found nothing; give it a value"),
    ({"ageing": {"every": "1h"}}, "ageing.most", "required field is missing"),
    ({"ageing": {"every": 0, "most": 3}}, "ageing.every", "expected more than 0"),
    ({"ageing": {"every": "1h", "most": 0}}, "ageing.most", "from 1 to 1000"),
    ({"patience": "-5m"}, "patience", "expected a duration"),
    ({"halfLife": "0s"}, "halfLife", "expected more than 0"),
    ({"halfLife": "200y"}, "halfLife", "expected a duration"),
    ({"pastPercent": 101}, "pastPercent", "from 0 to 100"),
    ({"users": "ada"}, "users", 'expected a list of words, found "ada"; write [ada]'),
    ({"users": ["ada", "B"]}, "users[1]", "expected a user"),
    ({"users": ["ada", "ada"]}, "users[1]", "is given twice"),
    ({"projects": [""]}, "projects[0]", "expected a project"),
    ({"projects": [7]}, "projects[0]", 'put it in quotes: "7"'),
    ({"prices": {"": 1}}, "prices.", "expected a model"),
    ({"prices": {A100: -1}}, f"prices.{A100}", "at most three decimals"),
    ({"prices": {A100: "1.2345"}}, f"prices.{A100}", "at most three decimals"),
    ({"prices": {A100: float("inf")}}, f"prices.{A100}", "at most three decimals"),
    ({"packing": "tight"}, "packing", f'expected one of {", ".join(PACKINGS)}, found "tight"'),
]


@pytest.mark.parametrize(("fields", "path", "message"), POOL_MISTAKES, ids=lambda value: str(value)[:50])
def test_a_mistake_of_a_pool_is_named(fields: dict[str, Any], path: str, message: str) -> None:
    """One mistake, one error, at the path as it was written."""
    found = pool_errors(**fields)
    assert list(found) == [path]
    assert message in found[path]


#: (file, path, what the message must hold)
FILE_MISTAKES: list[tuple[Any, str, str]] = [
    (None, "", 'expected a map of names and values, found "null"'),
    ([{"path": "a"}], "", "expected a map of names and values"),
    ({}, "", "expected pools or queues, found neither"),
    ({"queues": {}, "pools": {}}, "", "expected pools or queues, found neither"),
    ({"queue": {}}, "queue", "unknown field; expected pools, queues"),
    ({"pools": {"A": {}}}, "pools.A", "expected a name of 1 to 63"),
    ({"queues": {"a": {"queues": {"b": {}}}, "a/b": {}}}, "queues.a/b", "a/b is given twice: it is queues.a.queues.b already"),
    ({"queues": {"a/b": {"pool": "x"}}}, "queues.a/b.pool", "expected none below the top: a/b is in the pool of a"),
    ({"queues": {"a": {"pool": "x", "queues": {"b": {"pool": "default"}}}}}, "queues.a.queues.b.pool", 'or "x" as a has it'),
    ({"queues": {"/".join("abcdefghi"): {}}}, "queues.a/b/c/d/e/f/g/h/i", "expected queues at most 8 deep"),
    ({"queues": {f"q{i}": {} for i in range(CHANGES_MAX + 1)}}, "", f"at most {CHANGES_MAX} pools and queues in one change, found 401"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "path", "message"), FILE_MISTAKES, ids=lambda value: str(value)[:50])
def test_a_mistake_of_a_file_is_named(file: Any, path: str, message: str) -> None:
    """Mistakes between queues, or in the file as a whole."""
    found = errors_of(file)
    assert list(found) == [path]
    assert message in found[path]


def test_all_mistakes_are_reported_at_once() -> None:
    """A user need not send a file five times to find five mistakes."""
    file = {
        "pools": {"p": {"pastPercent": 200}},
        "queues": {
            "a": {"weight": 0, "guaranteed": {"cpu": "x", "memory": "y"}, "queues": {"b": {"priority": -1001}}},
            "a/b": {"colour": "red"},
        },
    }
    assert list(errors_of(file)) == [
        "pools.p.pastPercent",
        "queues.a.guaranteed.cpu",
        "queues.a.guaranteed.memory",
        "queues.a.weight",
        "queues.a.queues.b.priority",
        "queues.a/b.colour",
        "queues.a/b",
    ]


def test_deep_nesting_ends_with_one_error() -> None:
    """A file of a hundred levels is refused at the first that is too deep."""
    file: dict[str, Any] = {}
    for _ in range(100):
        file = {"q": {"queues": file}}
    assert [message[:31] for message in errors_of({"queues": file}).values()] == ["expected queues at most 8 deep,"]


def test_duplicate_json_keys_are_named() -> None:
    """JSON allows them and keeps the last; here each is an error at its path."""
    text = (
        b'{"queues": {"a": {"weight": 1, "weight": 2}, "a": {"weight": 3, "weight": 4}}, "pools": {"p": {}, "p": {}}}'
    )
    assert errors_of(decode_object(text)) == dict.fromkeys(
        ("pools.p", "queues.a", "queues.a.weight"), "is given twice; keep one of them"
    )


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000, b'{"a": ' + b"1" * 5000 + b"}x"])
def test_bytes_that_are_not_json_raise_one_kind_of_error(text: bytes) -> None:
    """For any bytes."""
    with pytest.raises(msgspec.MsgspecError):
        decode_object(text)


def test_the_default_pool_has_one_spelling() -> None:
    """Named or not, the settings are equal, so that nothing seems to change; children do not repeat it."""
    named = read_queue_file({"queues": {"a": {"pool": "default", "queues": {"b": {"pool": "default"}}}}})
    assert named == read_queue_file({"queues": {"a": {"queues": {"b": {}}}}})


def test_one_queues_settings() -> None:
    """As the body of a PUT: paths start at the settings; queues below and a pool below the top are refused."""
    words = {"weight": 2, "pool": "a100", "roles": {"group:vision": "member"}}
    settings, roles = read_settings(words, "research")
    assert settings == QueueSettings(weight=2, pool="a100")
    assert roles == (("group:vision", "member"),)
    for value, path in (({"queues": {}}, "queues"), ({"pool": "a100"}, "pool"), ({"weight": 0}, "weight")):
        with pytest.raises(InvalidQueues) as caught:
            read_settings(value, "research/vision")
        assert [error.field for error in caught.value.errors] == [path]


# ------------------------------------------------------------------------------------ round trips

TOKENS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True)
MODELS = st.sampled_from([A100, "NVIDIA-L4", "Tesla-T4"])
GPUS = st.integers(0, 999_999).map(lambda gpus: gpus * 1000)
SOME_TIME = st.integers(1, 10**12).map(lambda ms: ms * 10**6)


def amounts(gpus: st.SearchStrategy[int] = GPUS) -> st.SearchStrategy[dict[str, int]]:
    """Amounts of any resources."""
    classes = st.dictionaries(MODELS.map(lambda model: f"gpu:{model}"), gpus, max_size=2)
    plain = st.fixed_dictionaries(
        {}, optional={"gpu": gpus, "cpu": st.integers(0, 10**9), "memory": st.integers(0, 2**40)}
    )
    return st.builds(lambda one, other: one | other, plain, classes)


SETTINGS = st.builds(
    QueueSettings, maximum=amounts(), borrowing=amounts(), weight=st.integers(1, 10**6), priority=st.integers(-1000, 1000),
    users=st.dictionaries(TOKENS.filter("default".__ne__) | st.just("*"), amounts(), max_size=2),
    budget=st.none() | st.builds(
        Budget, gpu_milli_s=st.integers(1, 10**9).map(lambda thousandths: thousandths * 3600),
        period=st.sampled_from(["day", "week", "month", "year"]), when_spent=st.sampled_from(["refuse", "demote"]),
    ),
    preemption=st.builds(
        Preemption, reclaim=st.sampled_from(["any", "lower_priority", "never"]), rebalance=st.booleans(),
        lower_priority=st.booleans(), protect_ns=st.just(0) | SOME_TIME,
    ),
)  # fmt: skip
POOLS = st.builds(
    PoolSettings, sequencer=TOKENS, half_life_ns=st.just(0) | SOME_TIME.filter((168 * HOUR_NS).__ne__),
    past_percent=st.integers(0, 100), users=st.lists(TOKENS, unique=True, max_size=3).map(tuple),
    projects=st.lists(TOKENS, unique=True, max_size=3).map(tuple), patience_ns=st.just(0) | SOME_TIME,
    ageing=st.none() | st.builds(Ageing, every_ns=SOME_TIME, most=st.integers(1, 1000)),
    prices=st.dictionaries(MODELS, st.integers(0, 10**9), max_size=3), defragment=st.booleans(),
    packing=st.sampled_from(PACKINGS),
)  # fmt: skip


@pytest.mark.slow
@given(
    st.dictionaries(TOKENS, POOLS, max_size=3),
    st.dictionaries(st.lists(TOKENS, min_size=1, max_size=4).map("/".join), SETTINGS, max_size=6),
    st.sampled_from(["", "a100"]),
)
def test_a_written_file_reads_the_same(
    pools: dict[str, PoolSettings], queues: dict[str, QueueSettings], pool: str
) -> None:
    """Settings to a file and back, through JSON: nothing is lost or rounded."""
    queues = {
        path: msgspec.structs.replace(
            one, pool="" if "/" in path else pool, guaranteed=dict(one.maximum), lending={r: a // 2000 * 1000 for r, a in one.maximum.items()}
        )
        for path, one in queues.items()
        if all(a <= one.maximum.get("gpu", a) for r, a in one.maximum.items() if r.startswith("gpu:"))
    }  # fmt: skip
    if not pools and not queues:
        return
    file = msgspec.json.decode(msgspec.json.encode(queue_file(pools, queues)))
    found = read_queue_file(file)
    assert {entry.pool: entry.settings for entry in found.pools} == pools
    assert {entry.path: entry.settings for entry in found.queues} == queues


@pytest.mark.parametrize(
    ("resource", "amount", "sentence"),
    [
        ("gpu", 1000, "1 GPU is"),
        ("gpu", 4000, "4 GPUs are"),
        (f"gpu:{A100}", 1000, f"1 {A100} GPU is"),
        (f"gpu:{A100}", 0, f"0 {A100} GPUs are"),
        ("cpu", 500, "0.500 CPUs are"),
        ("memory", 65_536, "64Gi of memory is"),
    ],
)
def test_amounts_in_sentences(resource: str, amount: int, sentence: str) -> None:
    """With what is counted, in the right number."""
    assert f"{counted(resource, amount)} {is_are(resource, amount)}" == sentence


def test_a_written_file_is_nested_where_parents_are_there() -> None:
    """Below its parent; flat where the parent is not in the file."""
    queues = {path: QueueSettings() for path in ("b", "b/c", "b/c/d", "a/x")}
    assert queue_file({}, queues) == {"queues": {"a/x": {}, "b": {"queues": {"c": {"queues": {"d": {}}}}}}}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["pools", "queues", "a", "users", "guaranteed", "budget", "cpu", "weight", ""]), inner
            )
        ),
        max_leaves=20,
    )
)
def test_no_value_crashes(value: Any) -> None:
    """Any value in a file is read, or refused with errors."""
    assert tells(value)


def tells(value: Any) -> bool:
    """Check that a file is read, or refused with at least one error."""
    try:
        read_queue_file(value)
    except InvalidQueues as refused:
        return bool(refused.errors)
    return True


def test_roles_of_queues_are_read_and_written_back() -> None:
    """One role or several for a subject; the words of the pairs lead to the same pairs."""
    stated = {"ann": "member", "group:leads": ["queue-admin", "operator"]}
    file = read_queue_file(
        {"queues": {"research": {"roles": stated, "queues": {"vision": {"roles": {"bob": "viewer"}}}}}}
    )
    pairs: tuple[tuple[str, QueueRole], ...] = (
        ("ann", "member"),
        ("group:leads", "operator"),
        ("group:leads", "queue-admin"),
    )
    assert file.roles == {"research": pairs, "research/vision": (("bob", "viewer"),)}
    assert read_queue_file({"queues": {"research": role_words(pairs)}}).roles == {"research": pairs}


@pytest.mark.parametrize(
    ("roles", "at"),
    [
        ({"ann": "boss"}, "queues.a.roles.ann"),
        ({"ann": "admin"}, "queues.a.roles.ann"),
        ({"ann": ["member", 3]}, "queues.a.roles.ann"),
        ({"Ann!": "member"}, "queues.a.roles"),
        (["ann"], "queues.a.roles"),
    ],
)
def test_roles_that_cannot_be_are_named_at_their_place(roles: object, at: str) -> None:
    """Unknown roles, admin (which is of the cluster), names that are none, and other shapes."""
    with pytest.raises(InvalidQueues) as refused:
        read_queue_file({"queues": {"a": {"roles": roles}}})
    assert refused.value.errors[0].field.startswith(at)


def test_a_file_states_every_role_but_the_one_of_the_cluster() -> None:
    """A role that is added must be added here, too."""
    assert {*QUEUE_ROLES, "admin"} == set(ROLES)
