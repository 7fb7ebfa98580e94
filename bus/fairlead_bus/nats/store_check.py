"""The guard before a nats-server starts: does its configuration suit the store that it is given?

A store that was filled by a single server and is then opened with a `cluster` block has its streams deleted: their
metadata is not in the cluster's, so the server takes them for orphans and removes them after half a minute, `deny_delete`
or not. The other way round, a server alone does not open streams with several copies, and a new log would be made in
place of the one that is there. Both starts are refused. Only files are read; start at `check_store`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from fairlead_bus.port import ServerUnfit

#: A comment begins a line or follows a blank or a bracket: unquoted addresses have slashes, too.
_TOKEN = re.compile(
    r"""(?P<comment>(?:\#|(?<![^\s{}\[\],;])//)[^\n]*)
      | "(?P<double>(?:\\.|[^"\\])*)" | '(?P<single>[^']*)'
      | (?P<mark>[{}\[\]=:,;])
      | (?P<bare>[^\s{}\[\]=:,;"'\#]+)""",
    re.VERBOSE,
)
_STORE_DIR = re.compile(
    r"""^[^\#\n]*\bstore_?dir["']?\s*[:=\s]\s*("(?P<double>[^"\n]+)"|'(?P<single>[^'\n]+)'|(?P<bare>[^\s"',;}]+))""",
    re.MULTILINE | re.IGNORECASE,
)
_CURE_FOR_CLUSTER = (
    "take the `cluster` block out, archive the log (`fairlead audit archive`), and restore it into servers with empty"
    " stores (`fairlead audit restore --nats`; docs/how-to/three-servers.md)"
)
_CURE_FOR_ONE = "put the `cluster` block back, or give this server an empty store and restore the log from its archive"


def check_store(store: Path, config: Path) -> None:
    """Raises ServerUnfit where a server with this configuration would lose or replace the streams of the store.

    `store`: the `store_dir` of the configuration; one that does not exist yet is empty.
    """
    streams = stored_streams(store)
    if not streams:
        return
    shown = ", ".join(streams)
    if has_cluster_block(config) and not is_of_cluster(store):
        raise ServerUnfit(
            f"{config} has a `cluster` block, and {store} was filled by a single server: the server would delete its"
            f" streams ({shown}) after half a minute. Not started. {_CURE_FOR_CLUSTER}"
        )
    if is_of_cluster(store) and not has_cluster_block(config):
        raise ServerUnfit(
            f"{config} has no `cluster` block, and {store} belongs to a server of a cluster: its streams ({shown}) would not"
            f" be opened. Not started. {_CURE_FOR_ONE}"
        )


def store_dir_of(config: Path) -> Path | None:
    """The `store_dir` that a configuration names in its own text; None where it names none or cannot be read."""
    try:
        found = _STORE_DIR.search(config.read_text())
    except (OSError, UnicodeDecodeError):
        return None
    return Path(found["double"] or found["single"] or found["bare"]) if found else None


def stored_streams(store: Path) -> list[str]:
    """Names of the streams in a store, of all accounts, sorted."""
    return sorted({path.name for path in store.glob("jetstream/*/streams/*") if path.is_dir()})


def is_of_cluster(store: Path) -> bool:
    """Return True if the store belongs to a nats-server that was in a NATS cluster: it has a cluster's metadata."""
    return any(store.glob("jetstream/*/_js_/_meta_"))


def has_cluster_block(config: Path) -> bool:
    """True where a configuration, or a file that it includes, has `cluster` at its top level. Raises ServerUnfit for a
    file that cannot be read."""
    try:
        text = config.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ServerUnfit(f"cannot read the server's configuration {config}: {error}") from error
    words = _top_level(text)
    for word in words:
        if word.lower() == "cluster":
            return True
        if word.lower() == "include" and has_cluster_block(config.parent / next(words, "")):
            return True
    return False


def _top_level(text: str) -> Iterator[str]:
    """The keys and plain values outside all blocks and lists, in order, with the value of a key left out."""
    depth, is_value = 0, False
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token[token.lastgroup or 0]
        if kind == "comment":
            continue
        if kind == "mark":
            depth += (word in "{[") - (word in "}]")
            is_value = word in "=:" and depth == 0
        elif depth == 0:
            if not is_value:
                yield word
            is_value = False
