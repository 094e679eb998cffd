"""The quota server killed for a time, under load: use by leases, by even parts, and after its return."""

import asyncio
import time

from ..processes import Site
from .fleet import CUSTOMERS, GREEDY, use_of_even_parts
from .run import Course, run
from .series import extremes, failed, overloaded, refused, refused_by_criticality, within

# A task keeps its rates for a lease after its last report, which is up to a second old. Then it is cautious for 2 s.
LEASE_S = 60.0
_LAST_REPORT_S = 1.0
_CAUTION_S = 2.0
# After the onset, until the server is killed. The second half is the period `before`.
_BEFORE_S = 20.0
AFTER_S = 25.0


def measure(site: Site, outage: float) -> dict:
    killed = returned = 0.0

    async def script(course: Course) -> None:
        nonlocal killed, returned
        await asyncio.sleep(_BEFORE_S)
        course.fleet.server.process.kill()
        killed = time.monotonic()
        await asyncio.sleep(outage)
        await asyncio.to_thread(course.fleet.server.start)
        returned = time.monotonic()
        await asyncio.sleep(AFTER_S)

    course = run(site, round(outage), script)
    begin = killed - _BEFORE_S / 2
    factor = course.charge_factor(begin, killed)
    leased = min(returned, killed + LEASE_S - _LAST_REPORT_S)
    spans = {"before": (begin, killed), "leases": (killed, leased)}
    if returned > killed + LEASE_S + _CAUTION_S:
        spans["even parts"] = (killed + LEASE_S + _CAUTION_S, returned)
    spans["server back"] = (returned, returned + AFTER_S)
    costs = [(each.at, factor * each.cost) for each in course.ended if CUSTOMERS[each.customer] is GREEDY]
    periods = {name: period(course, costs, factor, *span) for name, span in spans.items()}
    return {
        "outage_s": outage,
        "charge_factor": factor,
        "periods": periods,
        "use_of_even_parts": use_of_even_parts(CUSTOMERS.index(GREEDY)),
        "failed": failed(within(course.ended, begin, returned + AFTER_S)),
        "max_send_lag_ms": 1e3 * course.load.late,
    }


def period(course: Course, costs: list[tuple[float, float]], factor: float, begin: float, end: float) -> dict:
    """Use of the greedy customer as a part of its limit, and refusals."""
    ended = within(course.ended, begin, end)
    any_ten = extremes(costs, begin, end)
    greedy = CUSTOMERS.index(GREEDY)
    return {
        "seconds": end - begin,
        "mean": factor * course.used(greedy, begin, end) / GREEDY.limit,
        "any_10s": any_ten and [each / GREEDY.limit for each in any_ten],
        "refused": {of.name: refused([each for each in ended if each.customer == at]) for at, of in enumerate(CUSTOMERS)},
        "refused_by_criticality": refused_by_criticality([each for each in ended if each.customer == greedy]),
        "failed": failed(ended),
        "overloaded": overloaded(ended),
    }


def missed(result: dict) -> list[str]:
    """Goals that were missed."""
    name, made = f"loss of {result['outage_s']:g} s", []
    for period_name, of in result["periods"].items():
        if of["any_10s"] and of["any_10s"][1] > 1.04:
            made.append(f"{name}: {of['any_10s'][1]:.1%} of the limit used over ten seconds, {period_name}")
        if of["any_10s"] and period_name == "leases" and of["any_10s"][0] < 0.9:
            made.append(f"{name}: {of['any_10s'][0]:.1%} of the limit used over ten seconds, {period_name}")
    if result["failed"]:
        made.append(f"{name}: requests failed: {result['failed']}")
    return made
