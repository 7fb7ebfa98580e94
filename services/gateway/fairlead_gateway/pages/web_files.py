"""Files of the pages: read once at start, compressed, and named by the digest of all of them.

A name of a file never changes its bytes, so browsers keep it for good; a new version has new names. Only the files that
were found at start are served: no request becomes a path.
"""

import gzip
import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

#: Third-party modules: {name in import statements: file under vendor/}.
MODULES = {"preact": "preact.js", "preact/hooks": "hooks.js", "htm": "htm.js", "uplot": "uplot.js"}
#: Directory of these modules, which `make web` fills.
VENDOR = "vendor"

#: Style of every page, in this order.
STYLES = ("tokens.css", "shell.css")
#: What stands behind "from" in imports of modules; those inside functions, which are loaded later, have none.
_IMPORTS = re.compile(r'^(?:import|export)\b[^;]*?from\s*"([^"]+)"', re.MULTILINE)
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
#: Below this, compression saves less than its header costs.
_COMPRESS_FROM_BYTES = 512


class WebFile(NamedTuple):
    """File as it is sent."""

    body: bytes
    media_type: str
    #: `gzip`, or "".
    encoding: str


class WebFiles:
    """All files of the pages. `root`: of `folder`, unless a test names another."""

    def __init__(self, root: Path) -> None:
        found = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.suffix in _TYPES and path.is_file()
        }
        digest = hashlib.sha256()
        for name, body in found.items():
            digest.update(f"{name}\n{len(body)}\n".encode())
            digest.update(body)
        #: Part of the address of each file.
        self.version = digest.hexdigest()[:16]
        #: {name below web/: file}
        self.files: Mapping[str, WebFile] = {name: _as_sent(name, body) for name, body in found.items()}
        #: Both style sheets in one, for the head of each page.
        self.style = "".join(found.get(name, b"").decode() for name in STYLES)
        self._texts = {name: body.decode() for name, body in found.items() if name.endswith(".js")}
        #: Third-party modules that are missing, so that the pages cannot start.
        self.missing = [file for file in MODULES.values() if f"{VENDOR}/{file}" not in self.files]

    def address(self, name: str) -> str:
        """Return the address of a file."""
        return f"/web/{self.version}/{name}"

    def modules_of(self, *names: str) -> list[str]:
        """Return modules and all that they import at once, each once: what a browser needs before it can show anything."""
        found, wanted = dict[str, None](), list(names)
        while wanted:
            name = wanted.pop(0)
            if name in found or name not in self._texts:
                continue
            found[name] = None
            for target in _IMPORTS.findall(self._texts[name]):
                own = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
                wanted.append(f"{VENDOR}/{MODULES[target]}" if target in MODULES else own)
        return list(found)

    def import_map(self) -> str:
        """Return the import map of the third-party modules, as JSON."""
        return json.dumps({"imports": {name: self.address(f"{VENDOR}/{file}") for name, file in MODULES.items()}})


def folder() -> Path:
    """Return the directory of the pages: in the installed package, else in the repository."""
    installed = Path(__file__).parents[1] / "web"
    return installed if installed.is_dir() else Path(__file__).parents[4] / "web"


def _as_sent(name: str, body: bytes) -> WebFile:
    media_type = _TYPES[Path(name).suffix]
    if len(body) < _COMPRESS_FROM_BYTES:
        return WebFile(body, media_type, "")
    return WebFile(gzip.compress(body, 9, mtime=0), media_type, "gzip")
