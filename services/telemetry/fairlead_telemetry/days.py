"""`python -m fairlead_telemetry.days export | verify | attach FILE …`: the Parquet files of days that are over
(docs/concepts/telemetry.md).

export   write the due days into files now, as the service does unprompted; the service must be stopped meanwhile
verify   compare every file with the manifest: size, SHA-256, rows; may run while the service runs
attach   count files again that were brought back into the folder; the service must be stopped meanwhile
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from fairlead_schemas.wire.conditions import EXIT_STEPPED_DOWN
from fairlead_telemetry.samples.day_files import (
    FOLDER,
    RAW,
    SUMS,
    BadManifest,
    Kind,
    describe_file,
    mismatch,
    read_manifest,
)
from fairlead_telemetry.warehouse.warehouse import Warehouse, WarehouseBusy, WarehouseRefused


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0 done, 1 refused or something is wrong with a file, 75 another process has the warehouse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("FAIRLEAD_DATA", ".fairlead")) / "telemetry"
    parser.add_argument("--directory", type=Path, default=default, help=f"of the warehouse (default: {default})")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("export")
    verbs.add_parser("verify")
    verbs.add_parser("attach").add_argument("files", nargs="+", help="names of files in the folder of days")
    options = parser.parse_args(words)
    try:
        if options.verb == "verify":
            return verify(options.directory / FOLDER)
        warehouse = Warehouse(options.directory)
        try:
            return export(warehouse) if options.verb == "export" else attach(warehouse, options.files)
        finally:
            warehouse.close()
    except WarehouseBusy as busy:
        sys.stderr.write(f"{busy}: stop the telemetry service first\n")
        return EXIT_STEPPED_DOWN
    except (WarehouseRefused, BadManifest) as refused:
        sys.stderr.write(f"{refused}\n")
        return 1


def export(warehouse: Warehouse) -> int:
    """Write what is due."""
    now_ns = time.time_ns()
    warehouse.roll_up(now_ns)
    before = {file.name for file in warehouse.measured.files()}
    warehouse.file_samples(now_ns)
    for file in warehouse.measured.files():
        if file.name not in before:
            sys.stdout.write(f"{file.name}: {file.rows} rows, {file.bytes} bytes\n")
    return 0


def verify(folder: Path) -> int:
    """Say what is wrong with which file."""
    files = read_manifest(folder)
    found = [words for file in files if (words := mismatch(folder, file))]
    known = {file.name for file in files}
    strays = sorted(path.name for path in folder.glob("*.parquet") if path.name not in known)
    for words in found:
        sys.stderr.write(f"{words}\n")
    for name in strays:
        sys.stdout.write(f"{name}: not in the manifest, and not read; `attach {name}` lets it count\n")
    sys.stdout.write(f"{len(files) - len(found)} of {len(files)} files match the manifest\n")
    return 1 if found else 0


def attach(warehouse: Warehouse, names: Sequence[str]) -> int:
    """Let files count that lie in the folder. All of them, or none."""
    folder, known = warehouse.measured.folder, {file.name for file in warehouse.measured.files()}
    found = []
    for name in dict.fromkeys(names):
        kind = _kind(name)
        if kind is None or Path(name).name != name or not (folder / name).exists():
            sys.stderr.write(
                f"{name}: expected the name of a file in {folder} that begins with one of {', '.join((*RAW, *SUMS))}\n"
            )
            return 1
        if name in known:
            sys.stderr.write(f"{name}: it counts already\n")
            return 1
        try:
            found.append(describe_file(warehouse.reading(), folder, name, kind))
        except duckdb.Error as error:
            sys.stderr.write(f"{name}: no file of days: {str(error).splitlines()[0]}\n")
            return 1
    warehouse.attach_again(found)
    sys.stdout.write("".join(f"{file.name}: {file.rows} rows\n" for file in found))
    return 0


def _kind(name: str) -> Kind | None:
    kinds: tuple[Kind, ...] = (*RAW, *SUMS)
    return next((kind for kind in kinds if name.startswith(f"{kind}-") and name.endswith(".parquet")), None)


if __name__ == "__main__":
    sys.exit(main())
