"""Small files of /sys: one word or one number each."""

from pathlib import Path


def read_text(path: Path) -> str:
    """Its content without the line's end; "" where it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def read_number(path: Path) -> int:
    """Its number; -1 where there is none."""
    try:
        return int(read_text(path))
    except ValueError:
        return -1
