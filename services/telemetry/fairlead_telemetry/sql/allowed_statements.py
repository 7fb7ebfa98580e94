"""Gate for the statements that people may run: decided on DuckDB's own syntax tree, by a list of permitted nodes. Pure.

The database itself is also locked down (`worker.py`). The gate refuses the statements that the lock leaves open: PRAGMA,
CHECKPOINT, temporary tables, and every function that is not on the list below. Start at `check`.

SQL functions that people may call: those that compute from their arguments alone. Data, no rules.

An allow-list, because a new version of DuckDB brings new functions, and some of them read settings, plans or
the server. A test compares the list with what the installed version has, so that each new one is decided upon.
Not here, among others: `current_setting`, `json_serialize_plan` (it folds settings into the plan), sequences,
sleeping, and the catalogue's functions. Names in lower case.
"""

import json
import re
from difflib import get_close_matches
from typing import Any

import duckdb


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Operators as the parser names them.
OPERATORS = _names(
    """
    != !__postfix !~~ !~~* % & && * ** + - ->> / // < <-> << <= <=> <@ = > >= >> @ @> ^ ^@ | || ~ ~~ ~~* ~~~
    __postfix
    """
)

#: Arithmetic.
NUMBERS = _names(
    """
    abs acos acosh add asin asinh atan atan2 atanh bin binom bit_count bit_position bitstring cbrt ceil ceiling cos
    cosh cot decimal_division degrees divide even exp factorial fdiv floor fmod gamma gcd geomean geometric_mean
    get_bit greatest_common_divisor isfinite isinf isnan lcm least_common_multiple lgamma ln log log10 log2 mod
    multiply nextafter pi pow power radians random round round_even roundbankers set_bit sign signbit sin sinh sqrt
    subtract tan tanh trunc wavg weighted_avg xor
    """
)

#: Text, hashes, comparison, and what belongs nowhere else.
TEXT = _names(
    """
    alias ascii bar base64 bit_length char_length character_length chr concat concat_ws contains current_catalog
    current_database current_schema current_schemas damerau_levenshtein decode editdist3 encode ends_with error
    format formatreadabledecimalsize formatreadablesize format_bytes from_base64 from_binary from_hex
    gen_random_uuid greatest hamming hash hex if ilike_escape instr jaccard jaro_similarity jaro_winkler_similarity
    lcase least left left_grapheme levenshtein like_escape lower lpad ltrim md5 md5_number md5_number_lower
    md5_number_upper millennium mismatches nfc_normalize not_ilike_escape not_like_escape nullif octet_length ord
    overlay parse_dirname parse_dirpath parse_filename parse_formatted_bytes parse_path path_join position prefix
    printf regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
    regexp_split_to_array regexp_split_to_table repeat replace reverse right right_grapheme rpad rtrim sha1 sha256
    split split_part starts_with str_split str_split_regex string_split string_split_regex string_to_array
    strip_accents strlen substr substring substring_grapheme suffix switch to_base to_base64 to_binary to_hex
    translate trim typeof ucase unbin unhex unicode upper url_decode url_encode uuid uuid_extract_timestamp
    uuid_extract_version uuidv4 uuidv7 version
    """
)

#: Dates, times and intervals.
TIME = _names(
    """
    age ago century current_date current_localtime current_localtimestamp date_add date_diff date_part date_sub
    date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade
    epoch epoch_ms epoch_ns epoch_us era get_current_time get_current_timestamp hour isodow isoyear julian last_day
    make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz microsecond millisecond
    minute month monthname nanosecond normalized_interval now quarter second strftime strpos strptime time_bucket
    timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours to_microseconds to_millennia
    to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today
    transaction_timestamp try_strptime week weekday weekofyear year yearweek
    """
)

#: Lists, maps, structs, unions, enumerations.
NESTED = _names(
    """
    aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
    array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
    array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof
    array_inner_product array_intersect array_length array_negative_dot_product array_negative_inner_product
    array_pop_back array_pop_front array_position array_prepend array_push_back array_push_front array_reduce
    array_resize array_reverse array_reverse_sort array_select array_slice array_sort array_to_string
    array_to_string_comma_default array_transform array_unique array_value array_where array_zip cardinality
    element_at enum_code enum_first enum_last enum_range enum_range_boundary equi_width_bins filter flatten
    generate_series grade_up len length length_grapheme list_aggr list_aggregate list_any_value list_append
    list_apply list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or
    list_cat list_concat list_contains list_cosine_distance list_cosine_similarity list_count list_distance
    list_distinct list_dot_product list_element list_entropy list_extract list_filter list_first list_grade_up
    list_has list_has_all list_has_any list_histogram list_indexof list_inner_product list_intersect list_kurtosis
    list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode list_negative_dot_product
    list_negative_inner_product list_pack list_position list_prepend list_product list_reduce list_resize
    list_reverse list_reverse_sort list_select list_sem list_skewness list_slice list_sort list_stddev_pop
    list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop list_var_samp
    list_where list_zip map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract
    map_extract_value map_from_entries map_keys map_values range reduce row struct_concat struct_contains
    struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack struct_position
    struct_update struct_values union_extract union_tag union_value unpivot_list variant_array_length
    variant_contains variant_exists variant_extract variant_extract_string variant_group_array variant_keys
    variant_type variant_typeof
    """
)

#: JSON documents.
JSON = _names(
    """
    array_to_json from_json from_json_strict json json_array json_array_length json_contains json_deep_merge
    json_exists json_extract json_extract_path json_extract_path_text json_extract_string json_group_array
    json_group_object json_group_structure json_insert json_keys json_merge_patch json_merge_patch_diff
    json_normalize json_object json_pretty json_quote json_remove json_replace json_set json_strip_nulls
    json_structure json_transform json_transform_strict json_type json_valid json_value row_to_json to_json
    """
)

#: Aggregates, which also serve as window functions.
AGGREGATES = _names(
    """
    any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last
    arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg
    bool_and bool_or corr count count_if count_star countif covar_pop covar_samp decimal_average entropy favg first
    fsum group_concat histogram histogram_exact kahan_sum kurtosis kurtosis_pop last list listagg lttb mad max
    max_by mean median min min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop
    stddev_samp string_agg sum sum_no_overflow sumkahan var_pop var_samp variance variant_group_object
    """
)

#: Window functions alone.
WINDOWS = _names(
    """
    cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense
    row_number
    """
)

#: The parser makes these of other syntax; they are not in DuckDB's own list of functions.
SYNTAX = frozenset({"coalesce", "unnest", "grouping", "grouping_id", "ifnull", "columns", "try", "error"})

ALLOWED = OPERATORS | NUMBERS | TEXT | TIME | NESTED | JSON | AGGREGATES | WINDOWS | SYNTAX


QUERY_CHARS_MAX = 64 * 1024

#: Statements that read, in the parser's words. A data-changing CTE is another kind of node.
_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
#: Table functions that make rows from their arguments alone. All others read files, settings or other SQL text.
TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"})
#: Tables that reveal which files are where on the disk.
_INNER_TABLES = ("duckdb_", "pragma_", "pg_settings")
_EXPLAIN = re.compile(r"\s*explain(\s+analyze)?\s+", re.IGNORECASE)
_PARSER = duckdb.connect(":memory:", config={"enable_external_access": "false", "threads": 1})


class StatementRefused(Exception):
    """A statement that people may not run; `hint` says what they may do instead."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


_READ_ONLY = "one statement that reads: SELECT, WITH, FROM, DESCRIBE, SHOW TABLES, SUMMARIZE or EXPLAIN of one"


def check_statement(query: str) -> None:
    """Accept one reading statement over tables and views, or raise Refused."""
    if len(query) > QUERY_CHARS_MAX:
        raise StatementRefused(
            "too_long", f"the query has {len(query)} characters, at most {QUERY_CHARS_MAX} are read", "shorten it"
        )
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise StatementRefused("syntax", str(error), "DuckDB's SQL is documented at duckdb.org/docs/sql") from error
    if len(statements) != 1:
        raise StatementRefused("forbidden", f"{len(statements)} statements, expected one", f"send {_READ_ONLY}")
    kind = _kind(statements[0])
    if kind == "EXPLAIN":
        explain = _EXPLAIN.match(query)
        if explain is None:
            raise StatementRefused("forbidden", "this form of EXPLAIN is not allowed", "EXPLAIN [ANALYZE] SELECT …")
        return check_statement(query[explain.end() :])
    if kind != "SELECT":
        raise StatementRefused("forbidden", f"{kind} statements are not allowed here", f"send {_READ_ONLY}")
    _check_tree(_tree(query))
    return None


def _kind(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:  # newer kinds have no name in DuckDB's Python module
        return "such"


def _tree(query: str) -> Any:
    row = _PARSER.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone()
    tree = json.loads(row[0]) if row else {"error": True}
    if tree.get("error"):
        # The serialiser is the parser, and knows SELECT alone; PIVOT becomes several statements.
        raise StatementRefused(
            "forbidden", "only plain SELECT statements are read here", f"send {_READ_ONLY}; no PIVOT"
        )
    return tree


def _check_tree(tree: Any) -> None:
    # A stack instead of recursion: a hostile query may nest deeper than Python's stack.
    stack = [tree]
    while stack:
        found = stack.pop()
        if isinstance(found, list):
            stack.extend(found)
        elif isinstance(found, dict):
            _check_node(found)
            stack.extend(value for value in found.values() if isinstance(value, dict | list))


def _check_function(name: str) -> None:
    if name in ALLOWED:
        return
    close = get_close_matches(name, ALLOWED, n=1)
    hint = f"did you mean {close[0]}()?" if close else "functions that compute from their arguments are allowed"
    raise StatementRefused("forbidden", f"function {name[:80]}() is unknown or not allowed", hint)


def _check_node(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
        raise StatementRefused(
            "forbidden", f"{kind.removesuffix('_QUERY_NODE')} is not allowed inside a query", f"send {_READ_ONLY}"
        )
    if kind == "TABLE_FUNCTION":
        name = str(node.get("function", {}).get("function_name", "")).lower()
        if name not in TABLE_FUNCTIONS:
            raise StatementRefused(
                "forbidden", f"table function {name}() is not allowed", "read the tables that SHOW TABLES lists"
            )
    elif node.get("class") in ("FUNCTION", "WINDOW"):
        _check_function(str(node.get("function_name", "")).lower())
    elif kind == "BASE_TABLE" and str(node.get("table_name", "")).lower().startswith(_INNER_TABLES):
        raise StatementRefused(
            "forbidden", f"{node['table_name']} is not allowed", "use information_schema.columns or SHOW TABLES"
        )
    elif kind == "BASE_TABLE" and any(mark in str(node.get("table_name", "")) for mark in "/.*?["):
        # The files that views read can be reached, and shall be read through the views alone.
        raise StatementRefused(
            "forbidden", f"file {node['table_name'][:80]} is not allowed", "read the tables that SHOW TABLES lists"
        )
