"""Print for which Python and machine wheels are made: "CPython 3.13 on linux x86_64". Runs on a bare Python."""

import platform
import sys


def name() -> str:
    """The running Python and its machine."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return f"{platform.python_implementation()} {version} on {sys.platform} {platform.machine()}"


if __name__ == "__main__":
    print(name())
