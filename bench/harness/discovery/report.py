"""The result as Markdown, and the goals that plimsoll missed."""

from .contestants import DNS, FILE
from .faults import largest_share, still_sent
from .fleet import MAX_SEND_LAG_MS, RATE

_OURS = {each.name for each in [FILE, *DNS] if each.is_ours}
_LOST = ("state_lost", "counts_lost", "connections_lost", "averages_lost")
_REMOVALS = {"1 of 3 removed, then stopped": 1, "2 of 3 removed, then stopped": 2}


def _failed(parts: dict) -> tuple[int, int]:
    return sum(part["failed"] for part in parts.values()), sum(part["requests"] for part in parts.values())


def _share(failed: int, requests: int) -> str:
    return f"{failed:,} ({failed / requests:.2%})" if failed else "0"


def missed(result: dict) -> list[str]:
    """Every failed request of plimsoll, and every backend that lost its state."""
    found = []
    changes = result.get("changes", {"counts": {}, "kept": {}})
    for name, count in changes["counts"].items():
        if name in _OURS and count["failed"]:
            found.append(f"changes, {name}: {count['failed']} failed {count['kinds']}")
    for name, steps in changes["kept"].items():
        for step in steps:
            if step["seconds"] is None:
                found.append(f"changes, {name}, {step['change']}: never in force")
            elif lost := {key: step[key] for key in _LOST if step[key]}:
                found.append(f"changes, {name}, {step['change']}: {lost}")
    for phase, made in result.get("faults", {"phases": {}})["phases"].items():
        for name, parts in made["counts"].items():
            for part, count in parts.items():
                if name in _OURS and count["failed"]:
                    found.append(f"{phase}, {part}, {name}: {count['failed']} failed {count['kinds']}")
    return found


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in [head, ["---", *["--:"] * (len(head) - 1)], *rows]]


def _changes(changes: dict) -> list[str]:
    end = changes["lengths"]["end"]
    rows = [[name, f"{count['requests']:,}", _share(count["failed"], count["requests"])] for name, count in changes["counts"].items()]
    lines = ["## 3 → 30 → 3 backends", "", f"dnsmasq and a file, {RATE} requests/s for {end:g} s for each proxy.", ""]
    lines += _table(["", "requests", "failed"], rows)
    lines += ["", "plimsoll's API, before and after a change is in force, 0.1 to 0.2 s apart. A backend began anew if its state or its age, counts or averages fell.", ""]
    rows = []
    for name, steps in changes["kept"].items():
        for step in steps:
            if step["seconds"] is None:
                rows.append([f"{name}: {step['change']}", "never", *[""] * 6])
                continue
            latency = step["latency_ratio"]
            rows.append(
                [
                    f"{name}: {step['change']}",
                    f"{step['seconds']:.1f} s",
                    f"{step['untouched']} ({step['in_slow_start']})",
                    str(step["state_lost"]),
                    str(step["counts_lost"]),
                    " → ".join(map(str, step["connections"])),
                    f"{latency[0]:.2f}–{latency[2]:.2f}" if latency else "",
                    str(step["averages_lost"]),
                ]
            )
    head = ["change", "in force after", "untouched (in slow start)", "state anew", "counts anew", "connections", "latency average, new ÷ old"]
    lines += [*_table([*head, "averages anew"], rows), ""]
    lines += ["Idle connections are closed at any time. Without a change, from one reading to the next:", ""]
    lines += [
        f"- {name}: connections closed in {of['with_closed']} of {of['pairs']} pairs of readings, at most {of['most']} at once"
        for name, of in changes["closed_elsewhere"].items()
    ]
    return [*lines, ""]


def _faults(made: dict) -> list[str]:
    phases = {phase: of["counts"] for phase, of in made["phases"].items()}
    late = {phase for phase, of in made["phases"].items() if of["send_lag_p99_ms"] > MAX_SEND_LAG_MS}
    names = list(next(iter(phases.values())))
    lines = ["## DNS that fails", "", f"{RATE} requests/s for each proxy, all at the same time. Failed, and its share:", ""]
    rows = []
    for phase, contestants in phases.items():
        seconds = sum(part["requests"] for part in contestants[names[0]].values()) / RATE
        rows.append([f"{phase}, {seconds:.0f} s{' (!)' if phase in late else ''}", *(_share(*_failed(contestants[name])) for name in names)])
    sums = {name: [_failed(contestants[name]) for contestants in phases.values()] for name in names}
    totals = {name: (sum(failed for failed, _ in of), sum(requests for _, requests in of)) for name, of in sums.items()}
    rows.append(["all", *(_share(*totals[name]) for name in names)])
    rows.append(["requests", *(f"{totals[name][1]:,}" for name in names)])
    lines += _table(["phase", *names], rows)
    lines += ["", "Each phase includes the time after the fault. Beside failures:", ""]
    rows = []
    for phase in ("1 of 3 listed", "another 1 of 3 in each answer"):
        if phase in phases:
            shares = (largest_share(phases[phase][name]["fault"]) for name in names)
            rows.append([f"{phase}: share of the most loaded backend", *(f"{share:.0%}" for share in shares)])
    for phase, removed in _REMOVALS.items():
        if phase in phases:
            rows.append([f"{phase}: requests to it in the second half of the notice", *(str(still_sent(phases[phase][name], removed)) for name in names)])
    return [*lines, *_table(["", *names], rows), ""]


def _discarded(result: dict) -> list[str]:
    """Attempts in which the machine was busy, with their failures."""
    lines = []
    for show in ("changes", "faults"):
        for each in result.get(show, {}).get("discarded", []):
            of_show = each["counts"]["counts"]
            failed = {
                name: count
                for name, counts in of_show.items()
                if (count := counts["failed"] if show == "changes" else _failed(counts)[0])
            }
            text = ", ".join(f"{name} {count:,}" for name, count in failed.items()) or "none"
            lines.append(f"- {each['name']}: sent {each['send_lag_p99_ms']:.0f} ms late; failed: {text}")
    if not lines:
        return []
    limit = f"Discarded and repeated for all proxies, since the load sent more than {MAX_SEND_LAG_MS} ms late (p99)"
    return [f"{limit}; (!) marks a phase that was late in each attempt:", "", *lines, ""]


def markdown(result: dict) -> str:
    lines = [f"# Discovery: backends that change, DNS that fails, {result['date']}", ""]
    lines += [f"- **{name}**: {says}" for name, says in result["contestants"].items()] + [""]
    if "changes" in result:
        lines += _changes(result["changes"])
    if "faults" in result:
        lines += _faults(result["faults"])
    lines += _discarded(result)
    described = result["machine"]
    lines += ["Missed by plimsoll:" if result["missed"] else "plimsoll failed no request, and no untouched backend lost its state.", ""]
    lines += [f"- {each}" for each in result["missed"]] + [""] * bool(result["missed"])
    lines += [
        f"- taken by the hypervisor for others: {result['stolen']:.1%} of the time",
        f"- command: `{result['command']}`",
        f"- versions: {', '.join(result['versions'])}",
        f"- machine: {described['cores']} cores, {described['cpu']}, Linux {described['kernel']}; commit {result['commit']}",
        "",
    ]
    return "\n".join(lines)
