"""Many quiet tasks at one server: its CPU and its memory."""

import time

from ..processes import Process, Site, cpu_of_tree, resident_bytes_of_tree
from .fleet import CUSTOMERS, QuotaServer


def measure(site: Site, tasks: str, count: int, seconds: float) -> dict:
    """`tasks` is the program that is all tasks."""
    server = QuotaServer(site, list(CUSTOMERS))
    client = None
    try:
        time.sleep(1)
        before = resident_bytes_of_tree(server.process.pid)
        command = [tasks, f"127.0.0.1:{server.port}", str(count)]
        begun = time.monotonic()
        client = Process("many-tasks", command, site.directory, site.load_cores)
        server.wait_for_tasks(count, 60)
        joined = time.monotonic() - begun
        # Until the demand of the joining is over.
        time.sleep(3)
        reports, cpu, client_cpu = server.metric("plimsoll_quota_reports_total"), cpu_of_tree(server.process.pid), cpu_of_tree(client.pid)
        at = time.monotonic()
        time.sleep(seconds)
        span = time.monotonic() - at
        used = cpu_of_tree(server.process.pid) - cpu
        after = resident_bytes_of_tree(server.process.pid)
        return {
            "streams": count,
            "seconds": span,
            "joined_s": joined,
            "cores": used.total / span,
            "user_cores": used.user / span,
            "reports_per_s": (server.metric("plimsoll_quota_reports_total") - reports) / span,
            "client_cores": (cpu_of_tree(client.pid) - client_cpu).total / span,
            "rss_before_mib": before / 2**20,
            "rss_mib": after / 2**20,
            "rss_per_stream_kib": (after - before) / count / 2**10,
        }
    finally:
        if client is not None:
            client.kill()
        server.process.kill()
