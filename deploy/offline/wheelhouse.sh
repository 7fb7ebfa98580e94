#!/bin/sh
# Make a folder from which a machine without a network installs Fairlead: sh deploy/offline/wheelhouse.sh PYTHON DIR
# For the Python and the kind of machine that it runs on. Packages are those of requirements.lock, by hash.
set -eu
python=$1 out=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$out"
mkdir -p "$out/wheels" "$out/systemd"
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }

"$python" "$root/deploy/lock_for.py" all >"$out/requirements.txt"
pip download --no-deps --only-binary :all: --require-hashes -r "$out/requirements.txt" --dest "$out/wheels"
pip wheel --no-deps --no-build-isolation --wheel-dir "$out" "$root"
cp "$root"/deploy/offline/install.sh "$root"/deploy/offline/machine.py "$root"/deploy/nats.conf "$out"
cp -R "$root"/deploy/systemd/. "$out/systemd"
"$python" "$out/machine.py" >"$out/machine"
(cd "$out" && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
echo "wheelhouse  $out for $(cat "$out/machine"), $(ls "$out/wheels" | wc -l) packages, $(du -sm "$out" | cut -f1) MB; there: sh install.sh"
