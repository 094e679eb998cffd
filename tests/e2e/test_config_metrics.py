"""Metrics about the configuration in force: the end of certificates, and the last reload, of proxy and quota server."""

import signal
import ssl
import time
import urllib.request

from harness.certificates import Authority, Certificate
from harness.fleet import Admin, Fleet, Proxy, QuotaServer
from harness.process import wait_until

EXPIRY = "certificate_expiry_timestamp_seconds"


def end_of(certificate: Certificate) -> float:
    """The last moment of a certificate, by another reader of it."""
    decoded = ssl._ssl._test_decode_cert(str(certificate.certificate))  # noqa: SLF001
    return ssl.cert_time_to_seconds(decoded["notAfter"])


def expiries(admin: Admin, name: str) -> list[str]:
    return [line for line in admin.get("/metrics")[1].splitlines() if line.startswith(f"plimsoll_{name}{{")]


def reload_by_signal(process: Proxy | QuotaServer, expected: str) -> None:
    before = process.output().count(expected)
    process.signal(signal.SIGHUP)
    wait_until(expected, lambda: process.output().count(expected) > before)


def test_proxy_has_the_end_of_each_certificate_and_a_reload_reads_it_anew(fleet: Fleet) -> None:
    authority = Authority(fleet.directory)
    first, second = authority.issue("first", "DNS:a.example", "DNS:b.example"), authority.issue("second", "IP:127.0.0.1")
    sooner = authority.issue("sooner", "DNS:a.example", days=1)
    entries = ", ".join(each.toml() for each in (first, second, sooner))
    tls = f"name = \"users\"\n[listeners.tls]\ncertificates = [{entries}]\n"
    proxy = fleet.proxy([fleet.nginx()], listener=tls)
    metric = proxy.admin.metric
    assert len(expiries(proxy.admin, EXPIRY)) == 2, "one for each name"
    assert metric(f"plimsoll_{EXPIRY}", listener="users", certificate="a.example") == end_of(sooner)
    assert metric(f"plimsoll_{EXPIRY}", listener="users", certificate="unnamed") == end_of(second)
    authority.issue("sooner", "DNS:a.example", days=9)
    reload_by_signal(proxy, "config reloaded")
    assert metric(f"plimsoll_{EXPIRY}", listener="users", certificate="a.example") == end_of(first)


def test_proxy_tells_the_outcome_and_the_time_of_the_last_reload(fleet: Fleet) -> None:
    before = time.time()
    proxy = fleet.proxy([fleet.nginx()])

    def last() -> tuple[float, float]:
        metric = proxy.admin.metric
        return metric("plimsoll_last_reload_successful"), metric("plimsoll_last_reload_timestamp_seconds")

    successful, started = last()
    assert successful == 1 and before - 1 < started < time.time(), "the start counts as one"
    path = fleet.directory / "plimsoll-1.toml"
    good = path.read_text()
    path.write_text(good + "\nnonsense = 1\n")
    reload_by_signal(proxy, "config refused")
    successful, refused = last()
    assert successful == 0 and started < refused <= time.time()
    path.write_text(good)
    reload_by_signal(proxy, "config reloaded")
    successful, taken = last()
    assert successful == 1 and refused < taken <= time.time()


def test_quota_server_tells_both_too(fleet: Fleet) -> None:
    authority = Authority(fleet.directory)
    made = authority.issue("quota", "DNS:quota.internal", "IP:127.0.0.1")

    def text(port: int, admin: int) -> str:
        return f"""
listen = "127.0.0.1:{port}"
[admin]
listen = "127.0.0.1:{admin}"
[tls]
certificates = [{made.toml()}]
client_ca = "{authority.certificate}"
client_certificate = "required"
[services.shop]
reporters = ["spiffe://td/shop"]
[services.shop.customers]
acme = {{ hard_limit = 1 }}
"""

    server, path = fleet.quota_with(text)
    context = authority.client_context(authority.issue("reader", "URI:spiffe://td/reader"))

    def metric(name: str) -> float:
        url = f"https://127.0.0.1:{server.admin.port}/metrics"
        with urllib.request.urlopen(url, context=context, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        (value,) = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"plimsoll_quota_{name}")]
        return float(value)

    first = end_of(made)
    assert metric(f'{EXPIRY}{{certificate="quota.internal"}}') == first
    assert metric("last_reload_successful") == 1
    started = metric("last_reload_timestamp_seconds")
    good = path.read_text()
    path.write_text(good + "\nnonsense = 1\n")
    reload_by_signal(server, "config refused")
    assert metric("last_reload_successful") == 0 and metric("last_reload_timestamp_seconds") > started
    authority.issue("quota", "DNS:quota.internal", "IP:127.0.0.1", days=9)
    path.write_text(good)
    reload_by_signal(server, "config reloaded")
    assert metric("last_reload_successful") == 1
    assert metric(f'{EXPIRY}{{certificate="quota.internal"}}') == end_of(made) > first + 5 * 86400
