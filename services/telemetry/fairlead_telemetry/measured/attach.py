"""Opens a copy of the warehouse for people's SQL: it reaches the files of days that its views read, and no other file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

#: Shut after the files are allowed, for afterwards nothing can be.
_SHUT = ("enable_external_access", "lock_configuration")


def open_copy(path: str, config: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    """Read-only, with all of this configuration."""
    db = duckdb.connect(
        path, read_only=True, config={name: value for name, value in config.items() if name not in _SHUT}
    )
    files = [
        str(Path(folder) / name)
        for folder, name in db.execute("SELECT folder, name FROM measured.place, sample_files").fetchall()
    ]
    if files:
        db.execute("SET allowed_paths = [{}]".format(", ".join("'" + file.replace("'", "''") + "'" for file in files)))
    for name in _SHUT:
        if name in config:
            db.execute(f"SET {name} = {config[name]}")
    return db
