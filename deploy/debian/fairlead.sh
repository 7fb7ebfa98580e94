#!/bin/sh
# The command of the package: the same as `fairlead` of a virtual environment, wherever the package is unpacked.
exec "$(dirname "$(readlink -f "$0")")/python" -m fairlead "$@"
