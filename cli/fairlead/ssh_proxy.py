"""ProxyCommand of `fairlead ssh`: carries stdin and stdout over a tunnel that was opened for it, `python -m fairlead.ssh_proxy FILE`."""

import os
import sys
import threading
from pathlib import Path

import msgspec

from fairlead.errors import FairleadError
from fairlead.tunnel_link import PIECE_BYTES, connect_tunnel
from fairlead_schemas.http.tunnels import NewTunnel


def main(file: Path) -> None:
    """Carry until either side has ended. `file`: the tunnel, whose code is good once."""
    tunnel = msgspec.json.decode(file.read_bytes(), type=NewTunnel)
    file.unlink()
    try:
        connection = connect_tunnel(tunnel)
    except FairleadError as error:
        sys.exit(f"fairlead: {error}")

    def back() -> None:
        try:
            while data := connection.recv(PIECE_BYTES):
                view = memoryview(data)
                while view:
                    view = view[os.write(1, view) :]
        finally:
            os._exit(0)  # stdin may never end

    threading.Thread(target=back, daemon=True).start()
    while data := os.read(0, PIECE_BYTES):
        connection.sendall(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
