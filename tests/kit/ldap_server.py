"""Debian's slapd on a free port, for tests: a database of its own, filled before the start, over TLS or on loopback."""

import contextlib
import shutil
import socket
import subprocess
from pathlib import Path

from tests.kit.certificates import Authority
from tests.kit.eventually import eventually

SUFFIX = "dc=corp,dc=example"
READER, PASSWORD = f"cn=reader,{SUFFIX}", "reader's word"
SLAPD = shutil.which("slapd", path="/usr/sbin:/usr/bin")
_HEAD = f"""dn: {SUFFIX}
objectClass: dcObject
objectClass: organization
o: Corp
dc: corp

dn: ou=people,{SUFFIX}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{SUFFIX}
objectClass: organizationalUnit
ou: groups

dn: {READER}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: {PASSWORD}

"""


def person(uid: str, name: str = "") -> str:
    """Entry of a person."""
    shown = name or uid
    lines = (
        f"dn: uid={uid},ou=people,{SUFFIX}",
        "objectClass: inetOrgPerson",
        f"uid: {uid}",
        f"cn: {shown}",
        f"sn: {shown}",
    )
    return "\n".join((*lines, f"mail: {uid}@corp.example", "", ""))


def group(name: str, *members: str) -> str:
    """Entry of a group; members are "uid=ann" or "cn=other-group"."""
    names = [f"{each},ou={'people' if each.startswith('uid=') else 'groups'},{SUFFIX}" for each in members]
    lines = (f"dn: cn={name},ou=groups,{SUFFIX}", "objectClass: groupOfNames", f"cn: {name}")
    return "\n".join((*lines, *(f"member: {each}" for each in names), "", ""))


class LdapServer:
    """Use `with LdapServer(folder, entries) as server`. `server.url`; `authority`: for ldaps."""

    def __init__(self, folder: Path, entries: str, authority: Authority | None = None, *, entries_max: int = 0) -> None:
        """`entries_max`: the server's limit for a search; 0: none."""
        self._folder = folder
        self._entries = entries
        self._authority = authority
        self._limit = entries_max or "unlimited"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self.url = f"{'ldaps' if authority else 'ldap'}://localhost:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "LdapServer":
        assert SLAPD, "expected slapd: mark the test"
        (self._folder / "data").mkdir()
        config = self._folder / "slapd.conf"
        config.write_text(self._config())
        (self._folder / "entries.ldif").write_text(_HEAD + self._entries)
        add = Path(SLAPD).with_name("slapadd")
        subprocess.run([add, "-q", "-f", config, "-l", self._folder / "entries.ldif"], check=True, capture_output=True)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [SLAPD, "-d", "0", "-f", str(config), "-h", self.url], stdout=log, stderr=log
            )
        eventually(self._answers)
        return self

    def _config(self) -> str:
        tls = ""
        if self._authority is not None:
            cert, key = self._folder / "cert.pem", self._folder / "key.pem"
            self._authority.write(cert, key, "localhost")
            tls = f"TLSCertificateFile {cert}\nTLSCertificateKeyFile {key}\n"
        schemas = "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in ("core", "cosine", "inetorgperson"))
        return (
            f"{schemas}modulepath /usr/lib/ldap\nmoduleload back_mdb\nsizelimit {self._limit}\npidfile {self._folder}/pid\n{tls}"
            f'database mdb\nmaxsize 1073741824\nsuffix "{SUFFIX}"\ndirectory {self._folder}/data\n'
            f'index objectClass eq\naccess to attrs=userPassword by anonymous auth\naccess to * by dn.exact="{READER}" read\n'
        )

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
