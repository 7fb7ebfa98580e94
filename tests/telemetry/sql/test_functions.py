"""The list of SQL functions that people may call, held to the installed DuckDB."""

import re

import duckdb
import pytest

from fairlead_telemetry.sql import allowed_statements
from fairlead_telemetry.sql.allowed_statements import ALLOWED, SYNTAX

#: Looked at and left out: they read settings, plans, the catalogue, sequences or the clock of a wait, or nobody needs them.
LEFT_OUT = re.compile(
    r"__.*|(icu_)?collate_.*|icu_sort_key|pg_.*|inet_.*|has_.*_privilege|st_.*|json_(de)?serialize_.*|json_copy_.*"
)
_NAMES = (
    "current_setting getvariable currval nextval setval setseed write_log sleep_ms create_sort_key current_connection_id "
    "current_query current_query_id current_transaction_id txid_current get_block_size index_key in_search_path stats "
    "col_description obj_description shobj_description format_pg_type format_type map_to_pg_oid to_aggregate_state "
    "combine combine_aggr finalize constant_or_null remap_struct replace_type can_cast_implicitly cast_to_type invoke "
    "parse_duckdb_log_message vector_type make_type get_type variant_bytes_to_variant variant_comparator "
    "variant_to_parquet_variant variant_normalize hive_partition_component bitstring_byte_comparable "
    "timetz_byte_comparable vertex_extract generate_subscripts is_histogram_other_bin current_role session_user "
    "current_user user assert_true"
)
LEFT_OUT_NAMES = frozenset(_NAMES.split()) | {"is distinct from", "is not distinct from"}


def installed() -> set[str]:
    """Names of all scalar, aggregate, macro and window functions of the installed DuckDB."""
    rows = duckdb.connect(":memory:").execute(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate', 'macro', 'window')"
    )
    return {name for (name,) in rows.fetchall()}


def test_every_installed_function_is_classified() -> None:
    """Functions of a new version are unknown until a developer has reviewed them: allow them or leave them out, here."""
    undecided = {n for n in installed() - ALLOWED if not LEFT_OUT.fullmatch(n) and n not in LEFT_OUT_NAMES}
    assert undecided == set()


def test_the_list_names_what_there_is() -> None:
    """No allowed name is a misspelling, and none is also left out."""
    assert ALLOWED - installed() - SYNTAX <= {"__postfix", "filter"}
    assert not [name for name in ALLOWED - {"__postfix"} if LEFT_OUT.fullmatch(name) or name in LEFT_OUT_NAMES]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a + b * -c / d % e, a ** 2, a // b, a || b, a ~ 'x', a LIKE 'x', a NOT ILIKE 'y', a IN (1, 2), 5! FROM t",
        "SELECT coalesce(a, b), ifnull(a, b), nullif(a, b), CASE WHEN a THEN b END, CAST(a AS INT), try_cast(a AS INT) FROM t",
        "SELECT [1, 2][1], {'a': 1}.a, MAP {'a': 1}['a'], list_transform([1], lambda x: x + 1), x[1:2] FROM t",
        "SELECT extract(day FROM x), date_trunc('hour', x), x - INTERVAL 1 DAY, now(), current_date, strftime(x, '%H') FROM t",
        "SELECT count(*), count(*) FILTER (WHERE a > 1), sum(a) OVER (ORDER BY b), lag(a) OVER (), quantile_cont(a, 0.9) FROM t",
        "SELECT body->>'by', body->'$.x', json_extract_string(body, '$.y'), json_array_length(body) FROM events",
        "SELECT COLUMNS('g.*'), GROUPING(a), unnest([1]), string_agg(a, ',' ORDER BY a) FROM t GROUP BY ALL",
        "SELECT regexp_extract(a, '(x)'), split_part(a, '/', 1), greatest(a, 1), round(a, 2), md5(a) FROM t",
    ],
)
def test_everyday_functions_pass(query: str) -> None:
    """Each form that people write is accepted by the gate."""
    allowed_statements.check_statement(query)


def test_a_misspelt_function_gets_its_likely_name() -> None:
    """The gate answers before the engine could, so it must help as well."""
    with pytest.raises(allowed_statements.StatementRefused) as refused:
        allowed_statements.check_statement("SELECT date_trnc('hour', x) FROM t")
    assert "date_trunc" in refused.value.hint
