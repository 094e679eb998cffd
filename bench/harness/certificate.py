"""One certificate for every proxy, and one wish for every client.

What a handshake costs depends on what is agreed on: key type, group, cipher. Servers differ in what they prefer, and not
all can be told. So the clients offer one thing only, TLS 1.3 with X25519 and AES-128-GCM, through a configuration that
OpenSSL's programs read from their environment, and each run asks every proxy what came of it.
"""

import pathlib
import re
import subprocess

from .processes import StartFailed, find_program

_CLIENT = """
openssl_conf = settings
[settings]
ssl_conf = ssl
[ssl]
system_default = client
[client]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
Groups = X25519
"""


class Certificate:
    """A self-signed ECDSA P-256 certificate for localhost, made in `directory`."""

    def __init__(self, directory: pathlib.Path):
        self.chain = directory / "certificate.pem"
        self.key = directory / "key.pem"
        # HAProxy wants both in one file.
        self.both = directory / "both.pem"
        command = [find_program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-nodes", "-keyout", self.key, "-out", self.chain, "-days", "2", "-subj", "/CN=localhost"]
        # No authority, so that a client which has it as its only root believes it.
        command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(command, check=True, capture_output=True)
        self.both.write_text(self.chain.read_text() + self.key.read_text())


def client_environment(directory: pathlib.Path) -> dict[str, str]:
    """What a client's environment needs so that it offers the one thing."""
    path = directory / "client.cnf"
    if not path.exists():
        path.write_text(_CLIENT)
    return {"OPENSSL_CONF": str(path)}


def agreed(port: int, environment: dict[str, str]) -> str:
    """Protocol, cipher, kind of signature and group of a connection to this port."""
    done = subprocess.run(
        [find_program("openssl"), "s_client", "-connect", f"127.0.0.1:{port}", "-brief"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=10,
    )
    wanted = ("Protocol version", "Ciphersuite", "Signature type", "Server Temp Key")
    found = [re.search(rf"^{name}: (.+)$", done.stderr, re.MULTILINE) for name in wanted]
    if done.returncode != 0 or not all(found):
        raise StartFailed(f"no TLS connection to port {port}:\n{done.stderr}")
    return ", ".join(match[1] for match in found)
