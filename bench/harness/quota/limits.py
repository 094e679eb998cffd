"""Use by the limits: eight backends under uneven load, one customer at three times its limit."""

import asyncio

from ..processes import Site
from .fleet import CUSTOMERS, GREEDY
from .run import WARMUP_S, Course, run
from .series import extremes, failed, overloaded, refused, refused_by_criticality, within

# Time until rates follow a new demand. The windows over any ten seconds begin with the onset all the same.
SETTLE_S = 5.0


def measure(site: Site, seconds: float) -> dict:
    async def script(_: Course) -> None:
        await asyncio.sleep(SETTLE_S + seconds)

    return summary(run(site, 1, script), seconds)


def summary(course: Course, seconds: float) -> dict:
    begin, end = course.onset + SETTLE_S, course.onset + SETTLE_S + seconds
    charged = course.samples.charged_between(begin, end)
    factor = course.charge_factor(begin, end)
    customers = {}
    for at, of in enumerate(CUSTOMERS):
        ended = [each for each in within(course.ended, begin, end) if each.customer == at]
        costs = [(each.at, factor * each.cost) for each in course.ended if each.customer == at]
        ok = sum(each.outcome == "ok" for each in ended)
        used = course.used(at, begin, end)
        any_ten, from_onset = extremes(costs, begin, end), extremes(costs, course.onset, end)
        customers[of.name] = {
            "limit_cpus": of.limit,
            "offered_cpus": used * len(ended) / max(ok, 1),
            "used_cpus": used,
            "charged_cpus": charged[of.name],
            "charged_of_limit_10s": any_ten and [each / of.limit for each in any_ten],
            "charged_of_limit_10s_from_onset": from_onset and [each / of.limit for each in from_onset],
            "requests": len(ended),
            "refused": refused(ended),
            "refused_by_criticality": refused_by_criticality(ended),
            "failed": failed(ended),
            "overloaded": overloaded(ended),
        }
    span, total, burnt = course.samples.cpu_between(begin, end)
    rows = course.samples.cpu
    steps = [(row[0], row[1] - before[1]) for before, row in zip(rows, rows[1:], strict=False)]
    kernel_10s = extremes(steps, begin, end)
    before = within(course.ended, course.onset - WARMUP_S / 2, course.onset)
    return {
        "seconds": seconds,
        "customers": customers,
        "refused_before_onset": {of.name: refused([e for e in before if e.customer == at]) for at, of in enumerate(CUSTOMERS)},
        "kernel_cpus": total / span,
        "kernel_burnt_cpus": burnt / span,
        "kernel_cpus_10s": kernel_10s,
        "responses_cpus": sum(of["used_cpus"] for of in customers.values()),
        "charged_cpus": sum(charged.values()),
        "limits_cpus": sum(of.limit for of in CUSTOMERS),
        "charge_factor": factor,
        "max_send_lag_ms": 1e3 * course.load.late,
    }


def missed(result: dict) -> list[str]:
    """Goals that were missed."""
    made = []
    for name, of in result["customers"].items():
        most = of["charged_of_limit_10s_from_onset"]
        if most is not None and most[1] > 1.04:
            made.append(f"limits: {name} used {most[1]:.1%} of its limit over ten seconds")
        if name != GREEDY.name and (of["refused"] or 0) > 0.005:
            made.append(f"limits: {of['refused']:.2%} of the requests of {name} were refused below its limit")
        if of["failed"]:
            made.append(f"limits: requests of {name} failed: {of['failed']}")
    order = result["customers"][GREEDY.name]["refused_by_criticality"]
    if order["critical-plus"] > 0.001:
        made.append(f"limits: {order['critical-plus']:.2%} of critical-plus requests were refused above the cut")
    return made
