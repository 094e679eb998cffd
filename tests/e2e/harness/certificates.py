"""Certificates for tests, made by openssl: an authority, and what it signs."""

import pathlib
import ssl
from dataclasses import dataclass

from .process import find_program, run


@dataclass
class Certificate:
    """Files in PEM."""

    certificate: pathlib.Path
    key: pathlib.Path

    def toml(self) -> str:
        """As an entry of `certificates`."""
        return f'{{ certificate = "{self.certificate}", key = "{self.key}" }}'


def _openssl(*arguments: str) -> None:
    done = run([find_program("openssl"), *arguments])
    assert done.returncode == 0, done.stderr


class Authority:
    """Signs certificates with ECDSA keys, valid for two days."""

    def __init__(self, directory: pathlib.Path, name: str = "authority"):
        self.directory = directory
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", str(self._key), "-out", str(self.certificate)),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def issue(self, name: str, *alternative_names: str, days: int = 2) -> Certificate:
        """A certificate for names such as `DNS:a.example`, `IP:127.0.0.1` or `URI:spiffe://a/b`, for servers and clients."""
        made = Certificate(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        extensions.write_text(
            f"subjectAltName={','.join(alternative_names)}\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n"
        )
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", str(made.key), "-out", str(request)),
        )
        # Signed beside its place and moved there: whoever reads it meanwhile finds a whole one.
        signed = made.certificate.with_suffix(".new")
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-days", str(days), "-extfile", str(extensions), "-out", str(signed)),
        )
        signed.replace(made.certificate)
        return made

    def client_context(self, client: Certificate | None = None, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """A client that trusts this authority alone."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def server_context(self, server: Certificate, ask_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.certificate, server.key)
        if ask_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(str(self.certificate))
        return context
