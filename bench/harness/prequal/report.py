"""The result as Markdown."""

import statistics

from .contestants import CONTESTANTS, PROBED, RESPONSES, WEIGHTED
from .load import TIMEOUT_S
from .machines import CALM, COST, CROWDED, CROWDED_PART, HOLDS_S
from .rare import MAX_SEND_LAG_MS

# Goals: live probes cost at most this much CPU of the proxy beside the same policy without, or beside the default,
# and p99 with them is no longer than without.
MAX_CPU_RATIO = 1.10


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"| --- |{' --: |' * (len(head) - 1)}", *(f"| {' | '.join(row)} |" for row in rows)]


def _median(rounds: list[dict], key: str) -> float:
    return statistics.median(each[key] for each in rounds)


def _range(values: list[float], form: str) -> str:
    low, middle, high = (format(value, form) for value in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def _ranged(rounds: list[dict], key: str, form: str) -> str:
    return _range([each[key] for each in rounds], form)


def probes_per_request(rounds: list[dict]) -> float:
    return sum(each["probes"].get("queries", 0) for each in rounds) / sum(each["requests"] for each in rounds)


def ratios(part: dict, other: str) -> list[float]:
    """CPU per request with live probes over that of another contestant, in each round."""
    runs = part["contestants"]
    pairs = zip(runs[PROBED.name], runs[other], strict=True)
    return [one["proxy_us_per_request"] / two["proxy_us_per_request"] for one, two in pairs]


def _compared(part: dict, form: str) -> str:
    """Ratios of CPU to both contestants, as far as they took part."""
    others = [other for other in (RESPONSES, WEIGHTED) if {PROBED.name, other.name} <= part["contestants"].keys()]
    return "; ".join(f"over that of `{other.name}` {_range(ratios(part, other.name), form)}" for other in others)


def missed(result: dict) -> list[str]:
    """Goals that live probes miss."""
    found = []
    for name in ("rare", "busy"):
        if (part := result.get(name)) and {PROBED.name, RESPONSES.name, WEIGHTED.name} <= part["contestants"].keys():
            ratio = min(statistics.median(ratios(part, other.name)) for other in (RESPONSES, WEIGHTED))
            if ratio > MAX_CPU_RATIO:
                found.append(f"{name}: the proxy needs {ratio:.2f} times the CPU at least; at most {MAX_CPU_RATIO} is the goal")
    if (part := result.get("rare")) and {PROBED.name, RESPONSES.name} <= part["contestants"].keys():
        probed, responses = (_median(part["contestants"][each.name], "p99_ms") for each in (PROBED, RESPONSES))
        if probed > responses:
            found.append(f"rare: p99 is {probed:.0f} ms with live probes, {responses:.0f} without")
    return found


def _rare(part: dict) -> list[str]:
    rows = []
    for name, rounds in part["contestants"].items():
        failed, requests = (sum(each[key] for each in rounds) for key in ("failed", "requests"))
        rows.append(
            [
                name,
                _ranged(rounds, "p50_ms", ".0f"),
                _ranged(rounds, "p99_ms", ".0f"),
                _ranged(rounds, "p99.9_ms", ".0f"),
                f"{failed:,} of {requests:,}",
                f"{probes_per_request(rounds):.2f}",
                _ranged(rounds, "proxy_us_per_request", ".0f"),
                _ranged(rounds, "backend_us_per_request", ".0f"),
                _ranged(rounds, "most_loaded", ".2f"),
            ]
        )
    head = ["", "p50 ms", "p99 ms", "p99.9 ms", "failed", "probes per request", "proxy, CPU µs", "backend, CPU µs", "most requests ÷ mean"]
    rounds = [of for rounds in part["contestants"].values() for of in rounds]
    lags = [of["send_lag_p99_ms"] for of in rounds]
    return [
        f"## {part['proxies']} proxies, {part['backends']} backends, {part['load']:.0%} of their capacity",
        "",
        f"{part['rate']:.0f} requests a second in all, open loop: {part['rate'] / part['proxies']:.0f} through each proxy, and one in "
        f"{part['gap_s']:.1f} s from each proxy to each backend. Requests cost `{COST}` of one core at speed 1, shared by all in "
        "flight; the machines are emulated and use no CPU. Antagonists leave "
        f"{CALM[0]:.0%} to {CALM[1]:.0%} of a machine, and {CROWDED[0]:.0%} to {CROWDED[1]:.0%} of {CROWDED_PART:.0%} of the machines, "
        f"drawn anew every {HOLDS_S:g} s. All contestants have the same speeds and the same requests. Each proxy has one thread.",
        "",
        f"Median of {len(rounds) // len(part['contestants'])} rounds of {part['seconds']:g} s, and the range; {part['at_once']} contestants at a time, "
        f"each with its own proxies and backends. A failed request has no answer within {TIMEOUT_S:g} s, or another one than 200.",
        "",
        *_table(head, rows),
        "",
        *([f"CPU of the proxies with live probes, by round: {ratio}."] if (ratio := _compared(part, ".2f")) else []),
        f"The processes of one contestant, its load included, used at most {max(of['cores'] for of in rounds):.2f} cores. Requests were sent at most "
        f"{max(lags):.1f} ms late (p99; the limit is {MAX_SEND_LAG_MS:g} ms); {len(part['discarded'])} later measurements discarded. "
        f"At most {max(of['stolen'] for of in rounds):.1%} of the time was stolen.",
        "",
    ]


def _busy(part: dict) -> list[str]:
    rows = [
        [
            name,
            _ranged(rounds, "proxy_us_per_request", ".2f"),
            f"{probes_per_request(rounds):.4f}",
            _ranged(rounds, "p50_ms", ".2f"),
            _ranged(rounds, "p99_ms", ".2f"),
            f"{sum(each['failed'] for each in rounds):,} of {sum(each['requests'] for each in rounds):,}",
            _ranged(rounds, "core_share", ".2f"),
        ]
        for name, rounds in part["contestants"].items()
    ]
    head = ["", "proxy, CPU µs", "probes per request", "p50 ms", "p99 ms", "failed", "part of a core"]
    return [
        f"## One busy proxy, {part['backends']} backends",
        "",
        f"{part['rate']:,} requests a second, open loop, through one proxy, alone on its core. Backends answer at once. "
        f"Median of {len(next(iter(part['contestants'].values())))} rounds of {part['seconds']:g} s, and the range.",
        "",
        *_table(head, rows),
        "",
        f"CPU of the proxy with live probes, by round: {_compared(part, '.2f')}.",
        "",
    ]


def markdown(result: dict) -> str:
    on = result["machine"]
    lines = [f"# Live probes of `prequal`, {result['date']}", ""]
    lines += [f"- **{each.name}**: {each.says}" for each in CONTESTANTS]
    lines += [""]
    if "rare" in result:
        lines += _rare(result["rare"])
        lines += [f"{name} took no part: {reason}." for name, reason in result["rare"]["missing"].items()]
    if "busy" in result:
        lines += _busy(result["busy"])
    lines += ["Goals missed:" if result["missed"] else "No goal missed.", ""]
    lines += [*(f"- {each}" for each in result["missed"]), ""] if result["missed"] else []
    lines += [f"`{result['command']}`, commit `{result['commit']}`, {', '.join(result['versions'])}."]
    lines += [
        f"{on['cpu']}, {on['cores']} cores, Linux {on['kernel']}, load average {on['load_before']} before; "
        f"all cores busy for {result['busy_part']:.0%} of the time with work of this machine, this benchmark's and other; "
        f"{result['stolen']:.1%} stolen; priority {result['priority']}."
    ]
    return "\n".join(lines) + "\n"
