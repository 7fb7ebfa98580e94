"""Changes to pages on their way into the site (mkdocs.yml): links that leave docs/ become text. Nothing here is imported by our code.

The pages are read in the repository too, where such a link leads to its file. The site has no copy of that file, so it names the path.
A link to a file that does not exist stays as it is, and the strict build fails on it.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_LINK = re.compile(r"\[([^\[\]]+)\]\((\.\.?/[^()#\s]+)(?:#[^()\s]*)?\)")


def on_page_markdown(markdown: str, /, *, page: Any, config: Any, files: Any) -> str:
    """Called by mkdocs with the text of each page."""
    return without_outside_links(markdown, DOCS / page.file.src_uri)


def without_outside_links(markdown: str, page: Path) -> str:
    """The text of a page, with the path of the file instead of a link out of docs/."""

    def replaced(found: re.Match[str]) -> str:
        words, target = found[1], (page.parent / found[2]).resolve()
        if target.is_relative_to(DOCS) or not target.is_relative_to(ROOT) or not target.exists():
            return found[0]
        path = f"`{target.relative_to(ROOT)}`"
        return path if words.strip("`") in path else f"{words} ({path})"

    return _LINK.sub(replaced, markdown)
