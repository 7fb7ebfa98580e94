"""Program that serves sftp over stdin and stdout, inside a process run and as its user: `python -I sftp_end.py`.

It is no part of the agent, whose loop must not wait for anybody's files. Start at `main`.
"""

import asyncio
import os
import sys

import asyncssh
from asyncssh.logging import logger
from asyncssh.sftp import SFTPServer, SFTPServerHandler

READ_BYTES = 256 * 1024


class PipeChannel:
    """As much of a channel as the library's server asks for: stdin and stdout, read and written whole."""

    def __init__(self) -> None:
        self.logger, self.channel = logger, self
        self._is_closing = False

    async def readexactly(self, size: int) -> bytes:
        """Return so many bytes of stdin. Raises IncompleteReadError at its end."""
        data = b""
        while len(data) < size:
            more = await asyncio.to_thread(os.read, 0, min(size - len(data), READ_BYTES))
            if not more:
                raise asyncio.IncompleteReadError(data, size)
            data += more
        return data

    def write(self, data: bytes) -> None:
        """Write to stdout; waits while nobody reads, and takes no further request meanwhile."""
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    def close(self) -> None:
        """End."""
        self._is_closing = True

    def is_closing(self) -> bool:
        """Return True behind `close`."""
        return self._is_closing

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return nothing: there is no connection here."""
        return default

    def get_environment(self) -> dict[str, str]:
        """Return nothing."""
        return {}


def main() -> None:
    """Serve to the end of stdin."""
    pipes = PipeChannel()
    server = SFTPServer(pipes)  # type: ignore[arg-type] -- it asks for nothing else
    handler = SFTPServerHandler(server, pipes, pipes, sftp_version=3)  # type: ignore[arg-type] -- as above
    asyncio.run(handler.run())


if __name__ == "__main__":
    try:
        main()
    except (asyncssh.Error, OSError) as error:
        sys.exit(f"sftp: {error}")
