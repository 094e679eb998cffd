"""Envoy with a file of examples/envoy."""

import json
import os
import pathlib
import sysconfig

from .fleet import ROOT, Admin, Fleet
from .process import Process, free_port

EXAMPLES = ROOT / "examples" / "envoy"
ENVOY = pathlib.Path(sysconfig.get_path("purelib")) / "envoy" / "_bin" / "envoy"


class Envoy(Process):
    """An Envoy with a file of examples/envoy, at other ports and with other texts in place of some.

    `log_level` is that of Envoy: `error`, `info`, `debug`.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        file: str,
        backends: list[str],
        quota: str,
        replaced: dict[str, str] | None = None,
        log_level: str = "error",
    ) -> None:
        self.port = free_port()
        self.admin = Admin(free_port())
        text = (EXAMPLES / file).read_text()
        (endpoint,) = [line for line in text.splitlines() if "port_value: 9001" in line]
        endpoints = [endpoint.replace("9001", address.split(":")[1]) for address in backends]
        ports = {f"port_value: {at}": f"port_value: {to}" for at, to in {8080: self.port, 9800: quota.split(":")[1]}.items()}
        for before, after in {endpoint: "\n".join(endpoints), **ports, **(replaced or {})}.items():
            assert before in text, before
            text = text.replace(before, after)
        address = f"{{ address: 127.0.0.1, port_value: {self.admin.port} }}"
        path = fleet.directory / f"{name}.yaml"
        path.write_text(f"{text}admin: {{ address: {{ socket_address: {address} }} }}\n")
        os.chmod(ENVOY, 0o755)
        command = [str(ENVOY), "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "--log-level", log_level]
        super().__init__(name, command, fleet.directory)
        fleet.processes.append(self)
        self.wait_for_port(self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def stat(self, name: str) -> int:
        """A counter of Envoy; zero before its first event."""
        status, text = self.admin.get(f"/stats?format=json&filter=^{name}$")
        assert status == 200, text
        return sum(of.get("value", 0) for of in json.loads(text)["stats"])
