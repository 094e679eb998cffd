"""The result as Markdown."""

import statistics

from .balance import COST_MS, MAX_SEND_LAG_MS, SPEEDS, rate
from .contestants import CONTESTANTS

# Goals of plimsoll: the largest difference between the costs of both machines in reference CPU-seconds, and the largest ratio of
# the work of slow and fast machines, either way.
MAX_COST_DIFFERENCE, MAX_WORK_RATIO = 0.05, 1.15


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"| --- |{' --: |' * (len(head) - 1)}", *(f"| {' | '.join(row)} |" for row in rows)]


def _median(rounds: list[dict], key: str) -> float:
    return statistics.median(each[key] for each in rounds)


def _range(rounds: list[dict], key: str, form: str, factor: float = 1) -> str:
    values = sorted(factor * each[key] for each in rounds)
    low, middle, high = (format(value, form) for value in (values[0], statistics.median(values), values[-1]))
    return middle if low == high else f"{middle} ({low}–{high})"


def missed(result: dict) -> list[str]:
    """Goals that plimsoll misses."""
    found = []
    slow, fast = result["costs"].values()
    for key in ("used_reference_ms", "reported_mean_ms"):
        if abs(fast[key] / slow[key] - 1) > MAX_COST_DIFFERENCE:
            found.append(f"{key}: {slow[key]:.2f} and {fast[key]:.2f}")
    for load, contestants in result["balance"]["loads"].items():
        rounds = contestants["plimsoll"]
        ratio = _median(rounds, "slow_work") / _median(rounds, "fast_work")
        if not 1 / MAX_WORK_RATIO <= ratio <= MAX_WORK_RATIO:
            found.append(f"load {load}: slow machines do {ratio:.2f} times the work of fast ones")
    return found


def _costs(costs: dict) -> list[str]:
    rows = [
        [
            f"speed {speed}",
            str(of["requests"]),
            f"{of['used_ms']:.2f}",
            f"{of['used_reference_ms']:.2f}",
            f"{of['reported_mean_ms']:.2f}",
            f"{of['reported_p5_ms']:.2f}–{of['reported_p95_ms']:.2f}",
        ]
        for speed, of in costs.items()
    ]
    head = ["machine", "requests", "CPU ms of the machine", "reference CPU ms", "reported, mean", "reported, 5th–95th percentile"]
    return ["## Cost of a request", "", "By the kernel, and by load reports, in reference CPU-milliseconds.", "", *_table(head, rows), ""]


def _balance(load: str, contestants: dict) -> list[str]:
    rows = []
    for name, rounds in contestants.items():
        failed, requests = (sum(each[key] for each in rounds) for key in ("failed", "requests"))
        rows.append(
            [
                name,
                _range(rounds, "fast_share", ".0%"),
                _range(rounds, "slow_work", ".2f"),
                _range(rounds, "fast_work", ".2f"),
                _range(rounds, "p50_ms", ".0f"),
                _range(rounds, "p99_ms", ".0f"),
                f"{failed:,} of {requests:,}",
            ]
        )
    head = ["", "answers by fast machines", "slow machine, work", "fast machine, work", "p50 ms", "p99 ms", "failed"]
    percent = f"{float(load):.0%}"
    return [f"## Balance at {percent} of the capacity", "", f"{rate(float(load)):.0f} requests a second for each proxy.", "", *_table(head, rows), ""]


def markdown(result: dict) -> str:
    on = result["machine"]
    fast = sum(speed for speed in SPEEDS if speed > min(SPEEDS)) / sum(SPEEDS)
    lines = [f"# Machines of two speeds, {result['date']}", ""]
    lines += [f"- **{each.name}**: {each.says}" for each in CONTESTANTS]
    lines += ["", *_costs(result["costs"])]
    lines += [
        f"Machines of the balance: speeds {', '.join(f'{speed:g}' for speed in SPEEDS)}; requests of {COST_MS:g} ms at speed 1 (exponential). "
        f"With equal work, fast machines have {fast:.0%} of the requests. *Work* is answered requests × cost ÷ speed, over the time. "
        "Median of the rounds, and their range.",
        "",
    ]
    for load, contestants in result["balance"]["loads"].items():
        lines += _balance(load, contestants)
    lags = [of["send_lag_p99_ms"] for contestants in result["balance"]["loads"].values() for rounds in contestants.values() for of in rounds]
    lines += [f"Requests were sent at most {max(lags):.0f} ms late (p99; the limit is {MAX_SEND_LAG_MS} ms)."]
    lines += [f"{len(result['balance']['discarded'])} later measurements discarded.", ""]
    lines += ["Goals missed:" if result["missed"] else "No goal missed.", ""]
    lines += [*(f"- {each}" for each in result["missed"]), ""] if result["missed"] else []
    lines += [f"`{result['command']}`, commit `{result['commit']}`, {', '.join(result['versions'])}."]
    lines += [f"{on['cpu']}, {on['cores']} cores, Linux {on['kernel']}, load average {on['load_before']} before; {result['stolen']:.1%} stolen."]
    return "\n".join(lines) + "\n"
