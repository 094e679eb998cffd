"""The cost of idle backends as Markdown, and its goals."""

from .cost import BASELINE, INTERVAL_S, NGINX, PROBE_INTERVAL_S, SUBJECT, TIME_WAIT_S

GOAL_US = 4.0
# Part of a core, by number of backends.
GOAL_CORES = {1_000: 0.0003, 10_000: 0.003}
GOAL_BYTES = 256
_CHECKED = "plimsoll, TCP checks"


def per_check(made: dict, key: str, baseline: dict | None) -> float | None:
    """µs of CPU a check, above the CPU of the same processes without checks."""
    if not made["checks"]:
        return None
    idle = baseline[key] if baseline else 0.0
    return (made[key] - idle) * made["seconds"] / made["checks"]


def above_idle(made: dict, size: dict[str, dict]) -> float:
    """Part of a core that probes or checks take."""
    return (made["proxy_cpu_us_per_s"] - size[BASELINE]["proxy_cpu_us_per_s"]) / 1e6


def summary(size: dict[str, dict]) -> dict[str, dict]:
    """By contestant: µs of CPU a check. The idle CPU of HAProxy is not measured: it counts as a part of its checks."""
    baseline, made = size[BASELINE], {}
    for name, of in size.items():
        if name != BASELINE:
            own = baseline if name.startswith("plimsoll") else None
            made[name] = {
                "proxy_us": per_check(of, "proxy_cpu_us_per_s", own),
                "backend_us": per_check(of, "backend_cpu_us_per_s", baseline),
            }
    return made


def bytes_per_backend(result: dict) -> dict[str, float]:
    """Memory of a further backend, by contestant, from the smallest and the largest size."""
    sizes = sorted(result["sizes"], key=int)
    if len(sizes) < 2:
        return {}
    few, many = result["sizes"][sizes[0]], result["sizes"][sizes[-1]]
    span = int(sizes[-1]) - int(sizes[0])
    return {name: (many[name]["anonymous_bytes"] - of["anonymous_bytes"]) / span for name, of in few.items()}


def descriptors_per_backend(result: dict, name: str) -> float:
    sizes = sorted(result["sizes"], key=int)
    few, many = result["sizes"][sizes[0]][name], result["sizes"][sizes[-1]][name]
    return (many["descriptors"] - few["descriptors"]) / max(int(sizes[-1]) - int(sizes[0]), 1)


def missed(result: dict) -> list[str]:
    """Goals that were missed."""
    found = []
    for count, size in result["sizes"].items():
        made, of = size[SUBJECT], summary(size)[SUBJECT]
        for role in ("proxy", "backend"):
            if (used := of[f"{role}_us"]) is None or used > GOAL_US:
                found.append(f"cost, {count} backends: {used or 0:.1f} µs of {role} CPU a query, not {GOAL_US:g}")
        share, goal = above_idle(made, size), GOAL_CORES.get(int(count))
        if goal and share > goal:
            found.append(f"cost, {count} backends: {share:.3%} of a core above that of an idle proxy, not {goal:.2%}")
        # Those of the start are over by then. One may be of the benchmark, which reads metrics of plimsoll, also without checks.
        waiting = made["time_wait"] - size[BASELINE]["time_wait"]
        if made["seconds"] >= TIME_WAIT_S and waiting > 0:
            found.append(f"cost, {count} backends: {waiting} sockets in TIME_WAIT")
        if made["inactive"] != int(count):
            found.append(f"cost, {count} backends: {made['inactive']:.0f} inactive at the end")
        expected = int(count) * made["seconds"] / PROBE_INTERVAL_S
        if not 0.8 * expected <= made["queries"] <= 1.2 * expected:
            found.append(f"cost, {count} backends: {made['queries']:.0f} queries, {expected:.0f} expected")
    memory = bytes_per_backend(result)
    if memory and memory[SUBJECT] - memory[_CHECKED] > GOAL_BYTES:
        found.append(f"cost: {memory[SUBJECT] - memory[_CHECKED]:.0f} bytes a backend more than with TCP checks, not {GOAL_BYTES}")
    if (each := descriptors_per_backend(result, SUBJECT)) > 0.01:
        found.append(f"cost: {each:.3f} descriptors a backend")
    return found


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def report(result: dict) -> list[str]:
    """As Markdown."""
    lines = [
        "## Cost of idle backends",
        "",
        f"Over {result['seconds']:g} s without a request; a check every {INTERVAL_S} s, a query every {PROBE_INTERVAL_S} s. CPU is run time by the",
        "kernel's scheduler. *Above idle* is the CPU above that of the same processes without checks, over checks or queries;",
        "that of HAProxy includes its idle CPU. Each process has one thread for its work.",
        f"All backends are {result['processes']} `plimsoll backend`, at a port each and many addresses: one responder answers an address",
        "200 times a second at most. So each query wakes a thread, as it does in a real fleet. Memory is anonymous, resident.",
        "One socket in TIME_WAIT is that of the benchmark, which reads plimsoll's metrics before.",
        "",
    ]
    for count, size in result["sizes"].items():
        lines += [
            f"### {int(count):,} backends",
            "",
            "| | proxy, µs of CPU a second | of a core | checks a second | proxy, µs a check above idle | backend, the same "
            "| TIME_WAIT | descriptors | MiB |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        costs = summary(size)
        for name, of in size.items():
            each = costs.get(name, {"proxy_us": None, "backend_us": None})
            rate = 0 if name == BASELINE else of["checks"] / of["seconds"]
            lines.append(
                f"| {name} | {of['proxy_cpu_us_per_s']:,.0f} | {of['proxy_cpu_us_per_s'] / 1e6:.3%} | {rate:,.1f} | {_us(each['proxy_us'])} "
                f"| {_us(each['backend_us'])} | {of['time_wait']:,} | {of['descriptors']} | {of['anonymous_bytes'] / 2**20:.1f} |"
            )
        made = size[SUBJECT]
        unanswered = max(made["queries"] - made["answers"], 0)
        lines += ["", f"Of {made['queries']:,.0f} queries {unanswered:,.0f} had no answer by the end; {made['inactive']:,.0f} backends were inactive.", ""]
    memory = bytes_per_backend(result)
    if memory:
        lines += ["Bytes of memory a further backend takes:", ""]
        lines += ["| " + " | ".join(memory) + " |", "|" + "--:|" * len(memory)]
        lines += ["| " + " | ".join(f"{each:,.0f}" for each in memory.values()) + " |", ""]
    return [*lines, NGINX, ""]
