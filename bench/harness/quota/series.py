"""Sums over time: the use in any ten seconds, and the ends of requests by outcome."""

import itertools
from collections import Counter
from collections.abc import Iterable

from .load import CRITICALITIES, Ended

WINDOW_S = 10.0
_STEP_S = 0.1
_SHED = "shed: "
# The outcome of requests that a limit over the fleet refuses.
REFUSED = f"{_SHED}quota"


def within(ended: Iterable[Ended], begin: float, end: float) -> list[Ended]:
    return [each for each in ended if begin <= each.at < end]


def extremes(events: list[tuple[float, float]], begin: float, end: float) -> tuple[float, float] | None:
    """The least and the most a second over any ten seconds of an interval; `None` if it is shorter."""
    bins = [0.0] * int((end - begin) / _STEP_S)
    for at, amount in events:
        number = int((at - begin) / _STEP_S)
        if 0 <= number < len(bins):
            bins[number] += amount
    width = round(WINDOW_S / _STEP_S)
    if len(bins) < width:
        return None
    sums = [0.0, *itertools.accumulate(bins)]
    windows = [(sums[at + width] - sums[at]) / WINDOW_S for at in range(len(bins) - width + 1)]
    return min(windows), max(windows)


def outcomes(ended: Iterable[Ended]) -> Counter[str]:
    return Counter(each.outcome for each in ended)


def refused(ended: list[Ended]) -> float | None:
    """The part that a limit refused; `None` without requests."""
    return outcomes(ended)[REFUSED] / len(ended) if ended else None


def refused_by_criticality(ended: list[Ended]) -> dict[str, float | None]:
    return {name: refused([each for each in ended if each.criticality == at]) for at, name in enumerate(CRITICALITIES)}


def failed(ended: list[Ended]) -> dict[str, int]:
    """Requests without a response of a backend that decided on them, by reason."""
    return {reason: count for reason, count in outcomes(ended).items() if reason != "ok" and not reason.startswith(_SHED)}


def overloaded(ended: list[Ended]) -> int:
    """Requests that a backend shed by itself: the machine was busy."""
    return sum(count for reason, count in outcomes(ended).items() if reason.startswith(_SHED) and reason != REFUSED)
