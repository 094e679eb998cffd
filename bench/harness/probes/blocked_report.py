"""The networks that drop UDP as Markdown, and their goals."""

from .blocked import BACKENDS, GOAL_S, LOSS_INTERVAL_S

_RULE = "nft add rule inet filter input udp dport"


def missed(result: dict) -> list[str]:
    """Goals that were missed."""
    found = []
    for name, made in result.items():
        if made["failed"]:
            found.append(f"blocked UDP, {name} dropped: {made['failed']} of {made['requests']} requests failed")
        if made["state_changes"]:
            found.append(f"blocked UDP, {name} dropped: {len(made['state_changes'])} changes of state, {made['state_changes'][:3]}")
    made = result["all"]
    if not made["resumed_s"] or made["resumed_s"][-1] > GOAL_S:
        found.append(f"blocked UDP: checks resume {made['resumed_s'][-1:]} s after the first unanswered query, not {GOAL_S:g}")
    if len(made["told"]) != 1 or _RULE not in made["told"][0]["help"]:
        found.append(f"blocked UDP: {len(made['told'])} lines of the log name the cause, not one: {made['told'][:2]}")
    return found


def _changes(made: dict) -> str:
    return f"{made['failed']} of {made['requests']} requests failed; {len(made['state_changes'])} changes of state."


def report(result: dict) -> list[str]:
    """As Markdown."""
    every, some = result["all"], result["some"]
    resumed, woken, told = every["resumed_s"], every["woken_s"], every["told"]
    series = some["series"]
    silent = [each["no-answer"] for each in series]
    lost = 1 - some["answers"] / max(some["queries"], 1)
    lines = [
        "## Blocked UDP",
        "",
        f"A proxy and {BACKENDS} backends in network namespaces, nftables at the backends, a request every two seconds.",
        "",
        f"**All UDP dropped.** {_changes(every)} Checks resumed {resumed[0]:.1f} to {resumed[-1]:.1f} s (median",
        f"{resumed[len(resumed) // 2]:.1f}) after a backend's first unanswered query, by the packets at {len(resumed)} backends. A request",
        f"woke the other {len(woken)} then: its connection is as good as a check, and their checks go on by the schedule of 10 s (after",
        f"{', '.join(f'{each:.1f}' for each in woken) or '–'} s). A query comes every 20 s, so all {BACKENDS} were checked {every['all_checked_s']:.1f} s after the rule. Lines of the log about it: {len(told)}",
        *[f"- after {line['after_s']:.1f} s: {line['help']}" for line in told[:3]],
        "",
        f"**One datagram in ten dropped, each way**, for {some['seconds'] / 60:g} min, a query every {LOSS_INTERVAL_S} s. {_changes(some)}",
        f"{some['queries']:,.0f} queries, {lost:.1%} without an answer; {some['woken']:,.0f} requests woke a backend. Lines of the log about it: {some['told']}.",
        "",
        f"| silent paths, of {BACKENDS} | share of the time |",
        "|--:|--:|",
        *[f"| {count:.0f} | {silent.count(count) / len(silent):.1%} |" for count in sorted(set(silent))],
        "",
    ]
    parts = 10
    means = []
    for part in range(parts):
        of = series[part * len(series) // parts : (part + 1) * len(series) // parts]
        if of:
            means.append(f"{sum(each['no-answer'] for each in of) / len(of):.1f} ({sum(each['inactive'] for each in of) / len(of):.1f})")
    lines += [f"Means of silent paths (and of inactive backends) in each tenth of the time: {', '.join(means)}.", ""]
    return lines
