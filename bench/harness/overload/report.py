"""The result of `bench/overload` as Markdown and as a page with plots."""

import html
import statistics

from .. import page, report
from . import summary
from .contestants import CONTESTANTS
from .measure import CALLERS, CAPACITY, CLIENT_TIMEOUT_SECONDS, COST, CRITICALITIES, CUSTOMERS, MOST_LAG_MS, USEFUL_WITHIN_MS

# The parts of a bar, from the most critical class down.
_OPACITIES = (1, 0.7, 0.45, 0.2)


def conditions(result: dict) -> str:
    """How the figures came about."""
    parts = ", ".join(f"{name} {part}%" for name, part in CRITICALITIES.items())
    rounds = f"{result['rounds']} round{'' if result['rounds'] == 1 else 's'}"
    core, proxy_core = result["core"], result["proxy_core"]
    where = f"both on core {core}" if core == proxy_core else f"on core {core} and on core {proxy_core}"
    return (
        f"One CPU-bound backend with one core, {COST} a request (mean 2 ms, so its capacity is {CAPACITY:g}/s when it does nothing "
        f"else), and the proxy if there is one, {where}; open-loop Poisson load from core "
        f"{', '.join(map(str, result['load_cores']))}: {parts}; {len(CUSTOMERS)} customers alike. An answer is useful when it is OK and "
        f"comes within {USEFUL_WITHIN_MS} ms of the moment at which the request was meant to be sent; every request carries this deadline, "
        f"and clients give up after {CLIENT_TIMEOUT_SECONDS} s. {rounds} of {result['seconds']} s after {result['warm_up']} s of "
        "warm-up, each with new processes; medians are told, and in brackets ranges."
    )


def _contestants(result: dict) -> list[str]:
    lines = ["| | |", "|---|---|"]
    for name in result["summary"]:
        limit, tried = result["limits"][name], result["tried"][name]
        found = f" (useful/s by limit: {', '.join(f'{at}: {rate:.0f}' for at, rate in tried.items())})" if tried else ""
        lines.append(f"| {name} | {CONTESTANTS[name].described(limit)}{found} |")
    return lines


def _goals(result: dict) -> list[str]:
    found = summary.goals(result["summary"])
    if not found:
        return []
    lines = ["| goals of | | measured | |", "|---|---|--:|---|"]
    return lines + [
        f"| {each.whose} | {each.says} | {each.got} | {'kept' if each.kept else '**missed**'} |" for each in found
    ]


def _overview(result: dict) -> list[str]:
    loads = [f"{load:g}" for load in result["loads"]]
    lines = [f"| useful work ÷ capacity | {' | '.join(f'{load}x' for load in loads)} |", f"|---|{'--:|' * len(loads)}"]
    for name, of in result["summary"].items():
        cells = [f"{of[load]['useful_work']:.2f} ({of[load]['low']:.2f}–{of[load]['high']:.2f})" for load in loads]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _of_ceiling(result: dict) -> list[str]:
    works = [summary.work_of(run) for run in result["ceiling"] if summary.is_ceiling(run)]
    if not works:
        return []
    loads = [f"{load:g}" for load in result["loads"]]
    most = f"{statistics.median(works):.2f} ({min(works):.2f}–{max(works):.2f})"
    lines = [
        f"| useful work ÷ what the backend alone does when kept busy, {most} | {' | '.join(f'{load}x' for load in loads)} |",
        f"|---|{'--:|' * len(loads)}",
    ]
    for name, of in result["summary"].items():
        lines.append(f"| {name} | {' | '.join(format(of[load]['of_ceiling'], '.2f') for load in loads)} |")
    return lines


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _load_table(result: dict, load: str) -> list[str]:
    lines = [
        f"| | {' | '.join(CRITICALITIES)} | useful work | p99 of useful, ms | CPU work | CPU beside | µs beside/request | failed otherwise | left late by, ms |",
        f"|---|{'--:|' * (len(CRITICALITIES) + 7)}",
    ]
    for name, of in result["summary"].items():
        row = of[load]
        shares = " | ".join(f"{each['share']:.1%}" for each in row["by_criticality"].values())
        late = f"{row['send_lag_p99_ms']:.1f}{' (!)' if row['send_lag_p99_ms'] > MOST_LAG_MS else ''}"
        lines.append(
            f"| {name} | {shares} | {row['useful_work']:.2f} | {_number(row['p99_ms'], '.0f')} | {row['work_cores']:.2f} "
            f"| {row['beside_cores']:.3f} | {_number(row['beside_us'], '.0f')} | {row['failed_otherwise']:.1%} | {late} |"
        )
    return lines


def _explained() -> str:
    return (
        "Per class: the share of its requests that was useful. Useful work: useful answers per second × 2 ms, over one core. Kept busy: by "
        f"{CALLERS} callers who wait for their answers, with nothing before the backend, in the same round; what it lacks of the capacity it "
        "spends on HTTP. CPU work: "
        "CPU-seconds per second that the backend's worker spent, useful or not; CPU beside: what its other threads and the proxy "
        "spent, and over all requests; at the highest loads nearly all of them are rejections, so it is what one costs at most. "
        "Failed otherwise: no answer before the client gave up, or never sent. Left late by: the load itself (p99, the worst round), "
        f"which counts against the answers; beyond {MOST_LAG_MS} ms (!) the row says nothing of the server."
    )


def _order(result: dict) -> str:
    wrong = [
        f"{name} at {load}x ({', '.join(found)})"
        for name, of in result["summary"].items()
        for load, row in of.items()
        if (found := summary.out_of_order(row))
    ]
    rule = (
        f"Order of classes: a class may lose more than {summary.TOUCHED:.0%} only where each lower one has less than "
        f"{summary.GONE:.0%} left. Not kept by"
    )
    return f"{rule}: {'; '.join(wrong)}." if wrong else f"{rule}: none."


def _trust(result: dict) -> str:
    rows = [row for of in result["summary"].values() for row in of.values()]
    return (
        f"taken by the hypervisor for others: {max((row['stolen'] for row in rows), default=0):.1%} of the time at most; "
        f"the load used up to {max((row['sending_cores'] for row in rows), default=0):.0%} of its core"
    )


def markdown(result: dict) -> str:
    lines = [f"# {result['title']}, {result['date']}", "", conditions(result)]
    for table in (_contestants(result), _goals(result), _overview(result), _of_ceiling(result)):
        lines += ["", *table] if table else []
    lines += ["", _explained(), "", _order(result)]
    for load in result["loads"]:
        lines += ["", f"## {load:g} times the capacity", "", *_load_table(result, f"{load:g}")]
    said = [_trust(result), *report.provenance(result)]
    return "\n".join([*lines, "", *(f"- {line}" for line in said), ""])


def _figure(result: dict, load: str) -> str:
    rows = [
        {
            "label": name,
            "parts": [each["work"] for each in of[load]["by_criticality"].values()],
            "low": of[load]["low"],
            "high": of[load]["high"],
        }
        for name, of in result["summary"].items()
    ]
    plot = page.bars(
        rows,
        f"of the capacity, full to pale: {', '.join(CRITICALITIES)}",
        f"Useful work at {load} times the capacity",
        _OPACITIES,
    )
    return f"<figure>{plot}</figure>"


def as_page(result: dict) -> str:
    body = [f"<p>{html.escape(conditions(result))}</p>"]
    body += [page.table(table) for table in (_contestants(result), _goals(result), _overview(result), _of_ceiling(result)) if table]
    body += [f"<p>{page.text(said)}</p>" for said in (_explained(), _order(result), _trust(result))]
    for load in result["loads"]:
        name = f"{load:g}"
        body += [f"<h2>{name} times the capacity</h2>", _figure(result, name)]
        body.append(f"<details><summary>figures</summary>{page.table(_load_table(result, name))}</details>")
    return page.document(result, "\n".join(body))
