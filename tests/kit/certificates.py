"""Certificates for tests: pairs for localhost, signed by a CA of their own."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

#: Certificates are read by the machine's clock.
_LIFE = datetime.timedelta(days=2)


class Authority:
    """CA that signs pairs; `ca` is its certificate's file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CA of a test")])
        public = self._key.public_key()
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = (
            _builder(self._name, self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(usage, critical=True)
        )
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def write(
        self, cert: Path, key: Path, name: str, *, is_rsa: bool = False, life: datetime.timedelta = _LIFE
    ) -> None:
        """Write a new pair for localhost with this common name, each file by a rename. `life`: from now to its end."""
        own = rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(subject, self._name, own.public_key(), life)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(signer, critical=False)
        )
        _replace(cert, builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        _replace(
            key,
            own.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    life: datetime.timedelta = _LIFE,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(now + life)
    )


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.replace(path)
