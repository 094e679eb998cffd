"""The result as Markdown."""

from .fleet import BACKENDS, COST, CUSTOMERS, GREEDY
from .load import CRITICALITIES


def percent(part: float | None, digits: int = 1) -> str:
    return "-" if part is None else f"{100 * part:.{digits}f}%"


def span(pair: tuple[float, float] | None) -> str:
    return "-" if pair is None else f"{percent(pair[0])}–{percent(pair[1])}"


def failures(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts.items()) or "0"


def limits(result: dict) -> list[str]:
    lines = [
        f"## Use by the limits, {result['seconds']:g} s",
        "",
        "| customer | limit | offered | used | charged | of the limit, any 10 s | the same from the onset | refused | overloaded | failed |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, of in result["customers"].items():
        lines.append(
            f"| {name} | {of['limit_cpus']:.2f} | {of['offered_cpus']:.3f} | {of['used_cpus']:.3f} | {of['charged_cpus']:.3f} "
            f"| {span(of['charged_of_limit_10s'])} | {span(of['charged_of_limit_10s_from_onset'])} "
            f"| {percent(of['refused'], 2)} | {of['overloaded']} | {failures(of['failed'])} |"
        )
    order = result["customers"][GREEDY.name]["refused_by_criticality"]
    lines += [
        "",
        f"Refused of {GREEDY.name}, by criticality: {', '.join(f'{name} {percent(order[name], 2)}' for name in CRITICALITIES)}.",
        "",
        "| CPUs of all backends | |",
        "|---|--:|",
        f"| by the kernel, in all | {result['kernel_cpus']:.3f} |",
        f"| the same over any 10 s | {' to '.join(f'{each:.3f}' for each in result['kernel_cpus_10s'] or ()) or '-'} |",
        f"| by the kernel, of the threads that burn costs | {result['kernel_burnt_cpus']:.3f} |",
        f"| by responses: used | {result['responses_cpus']:.3f} |",
        f"| by the quota server: charged | {result['charged_cpus']:.3f} |",
        f"| sum of the limits | {result['limits_cpus']:.2f} |",
        "",
    ]
    return lines


def losses(results: list[dict]) -> list[str]:
    lines = [
        "## Server killed",
        "",
        "| outage | period | s | use of the limit | any 10 s | refused, others | critical-plus, critical | overloaded | failed |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        for name, of in result["periods"].items():
            others = ", ".join(percent(of["refused"][each.name], 2) for each in CUSTOMERS if each is not GREEDY)
            first = ", ".join(percent(of["refused_by_criticality"][each], 1) for each in list(CRITICALITIES)[:2])
            lines.append(
                f"| {result['outage_s']:g} s | {name} | {of['seconds']:.0f} | {percent(of['mean'])} | {span(of['any_10s'])} "
                f"| {others} | {first} | {of['overloaded']} | {failures(of['failed'])} |"
            )
    expected = percent(results[0]["use_of_even_parts"])
    return [*lines, "", f"With an even part of the limit at each backend, this load can use {expected} of it.", ""]


def streams(result: dict) -> list[str]:
    return [
        f"## {result['streams']:,} quiet streams, {result['seconds']:.0f} s",
        "",
        "| | |",
        "|---|--:|",
        f"| CPU of the server, part of a core | {percent(result['cores'])} |",
        f"| the part of it in user mode | {percent(result['user_cores'])} |",
        f"| reports a second | {result['reports_per_s']:.0f} |",
        f"| resident memory | {result['rss_mib']:.1f} MiB, {result['rss_before_mib']:.1f} without streams |",
        f"| memory of a stream | {result['rss_per_stream_kib']:.1f} KiB |",
        f"| all joined after | {result['joined_s']:.1f} s |",
        "",
    ]


def markdown(result: dict) -> str:
    demands = ", ".join(f"{of.name} {of.demand:g} of {of.limit:g}" for of in CUSTOMERS)
    lines = [
        f"# Quotas over a fleet, {result['date']}",
        "",
        f"{BACKENDS} `plimsoll backend --protect --quota`, costs `{COST}`, demand in multiples of the limit in CPUs: {demands}.",
        "Half of a customer's requests go to one backend, a quarter to the next, and 2% to each of four.",
        "*Used* is the CPU of the code that answers, by `x-plimsoll-cost-us`. *Charged* is what limits count: an estimate of the",
        "HTTP beside a request is added. Uses over ten seconds are the used CPU, times charged over used in the same run.",
        "*Refused* is by a limit. *Overloaded* counts requests that a backend shed by itself, on a busy machine.",
        "",
    ]
    if "limits" in result:
        lines += limits(result["limits"])
    if result.get("losses"):
        lines += losses(result["losses"])
    if "streams" in result:
        lines += streams(result["streams"])
    described = result["machine"]
    lines += [f"- goal missed: {each}" for each in result["missed"]] or ["- all goals are met"]
    lines += [
        f"- taken by the hypervisor for others: {result['stolen']:.1%} of the time; load average before: {described['load_before']}",
        f"- command: `{result['command']}`",
        f"- versions: {', '.join(result['versions'])}",
        f"- machine: {described['cores']} cores, {described['cpu']}, Linux {described['kernel']}; commit {result['commit']}",
        "",
    ]
    return "\n".join(lines)
