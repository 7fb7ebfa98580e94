"""Random queries over everything that can be named: plain, joined, nested, recursive, describing, failing on a value."""

from hypothesis import strategies as st

from fairlead_telemetry import schema
from fairlead_telemetry.sql import visibility

#: What speaks of the catalogue, as far as it is let through; the rest is refused, which is as good.
CATALOGUE = (
    "information_schema.tables",
    "information_schema.columns",
    "information_schema.schemata",
    "information_schema.character_sets",
    "information_schema.key_column_usage",
    "information_schema.table_constraints",
    "pg_catalog.pg_class",
    "pg_catalog.pg_tables",
    "pg_catalog.pg_stats",
    "pg_catalog.pg_database",
    "pg_views",
    "sqlite_master",
    "duckdb_tables()",
    "duckdb_columns()",
    "duckdb_views()",
    "duckdb_indexes()",
    "pragma_storage_info('events')",
    "pragma_table_info('events')",
    "duckdb_temporary_files()",
    "duckdb_optimizers()",
)
#: Not `held_now`: its estimates move with the clock, so that two answers are never the same.
TABLES = (
    *visibility.TABLES,
    *(view.name for view in schema.VIEWS if view.name != "held_now"),
    "warehouse.main.events",
    "warehouse.fold.jobs",
)
COLUMNS = sorted({column.name for relation in (*schema.VIEWS, *schema.TABLES) for column in relation.columns})

_table = st.sampled_from(TABLES)
_column = st.sampled_from(COLUMNS).map(lambda name: f'"{name}"')
_kind = st.sampled_from(("INTEGER", "DOUBLE", "TIMESTAMP", "JSON", "UUID", "INTEGER[]", "BOOLEAN", "STRUCT(a INTEGER)"))
_value = st.one_of(
    _column,
    st.builds("CAST({} AS {})".format, _column, _kind),
    st.builds("TRY_CAST({} AS {})".format, _column, _kind),
    st.builds("error({}::VARCHAR)".format, _column),
    st.builds("{}::VARCHAR || {}::VARCHAR".format, _column, _column),
    st.builds("1 // length({}::VARCHAR)".format, _column),
    st.builds("json_extract({}::JSON, '$.job')".format, _column),
)
_total = st.builds(
    "{}({})".format,
    st.sampled_from(
        ("count", "min", "max", "list", "histogram", "mode", "approx_count_distinct", "any_value", "first", "last")
    ),
    _value,
)
_condition = st.one_of(
    st.just("true"),
    st.builds("{} IS NOT NULL".format, _value),
    st.builds("{}::VARCHAR SIMILAR TO '.*[a-z].*'".format, _column),
    st.builds("{} = {}".format, _column, _column),
    st.builds("{} IN (SELECT {} FROM {})".format, _column, _column, _table),
    st.builds("EXISTS (FROM {} q WHERE q.job IS NOT NULL)".format, _table),
)
_plain = st.one_of(
    _table.map("FROM {}".format),
    st.builds("SELECT {} FROM {} WHERE {}".format, _value, _table, _condition),
    st.builds("SELECT {}, {} FROM {}".format, _total, _total, _table),
    st.builds("SELECT {}, {} FROM {} GROUP BY 1 ORDER BY ALL".format, _column, _total, _table),
    st.builds("SELECT * FROM {} a JOIN {} b USING ({})".format, _table, _table, _column),
    st.builds("FROM {} a, {} b LIMIT 200".format, _table, _table),
    st.builds("FROM {} a FULL JOIN {} b ON a.job = b.job".format, _table, _table),
    st.builds("FROM {} a ANTI JOIN {} b ON a.job = b.job".format, _table, _table),
    st.builds("SELECT (SELECT {} FROM {}) FROM {}".format, _total, _table, _table),
    st.builds("WITH q AS (FROM {}) SELECT {} FROM q WHERE {}".format, _table, _value, _condition),
    st.builds("WITH q AS MATERIALIZED (FROM {}) FROM q, LATERAL (SELECT q.job)".format, _table),
    st.builds(
        "WITH RECURSIVE t AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM t WHERE i < (SELECT count(*) FROM {})) FROM t".format, _table
    ),
    st.builds("SELECT *, row_number() OVER (ORDER BY {}) FROM {}".format, _column, _table),
    st.builds("SELECT COLUMNS('.*')::VARCHAR FROM {}".format, _table),
    st.builds("SELECT DISTINCT {} FROM (FROM {} UNION ALL BY NAME FROM {})".format, _column, _table, _table),
    st.builds("FROM {} USING SAMPLE 50% (bernoulli, 7)".format, _table),
    st.sampled_from(CATALOGUE).map("FROM {}".format),
    st.just("SHOW TABLES"), st.just("SHOW ALL TABLES"), st.just("SHOW DATABASES"),
)  # fmt: skip
QUERIES = st.one_of(
    _plain,
    _plain,
    st.builds("SUMMARIZE {}".format, _table),
    st.builds("DESCRIBE {}".format, _table),
    st.builds("SUMMARIZE {}".format, _plain),
    st.builds("EXPLAIN {}".format, _plain),
    st.builds("EXPLAIN ANALYZE {}".format, _plain),
)
