"""What the rounds come to: medians, and whether the goals are kept.

* useful work: useful answers a second × the mean CPU of a request, over one core. By count and not by what each of them cost,
  which nobody but the backend knows; with sigma 1 the mean cost of n requests has a standard error of 1.31/√n: 2% in 8 s.
* of the ceiling: the same over what the backend alone does in that round when it is just kept busy. By the same seed, but not
  the same costs, so with twice the square of that error. A ceiling that was disturbed does not count: it would flatter everybody.
* CPU beside a request: that of all threads but the workers', and of the proxy, over the requests sent. Far above the capacity nearly
  all of them are rejections, so there it is what a rejection costs at most. The difference between two loads would not be: the
  more come at a time, the less each costs beside its work. Not told where many failed otherwise: those cost something, too.
"""

import statistics
from dataclasses import dataclass

from ..machine import little_stolen
from .contestants import SUBJECTS
from .measure import CAPACITY, CRITICALITIES

# What the project promises: useful work at ten times the capacity; and the share of the most critical class that is
# useful wherever it fits into the capacity with some room for turning away the rest.
USEFUL_WORK = 0.90
MOST_CRITICAL = 0.995
_FITS = 0.8
# A class that loses more than this is touched; one that keeps less than this is gone.
TOUCHED = 0.05
GONE = 0.05
_MOST_FAILED = 0.02


@dataclass(frozen=True)
class Goal:
    """A promise beside what was measured."""

    whose: str
    says: str
    got: str
    kept: bool


def _share(counts: dict) -> float:
    return counts["useful"] / _offered(counts)


def _offered(counts: dict) -> int:
    return max(counts["requests"] + counts["dropped"], 1)


def _failed_otherwise(run: dict) -> float:
    """Share of the requests with no answer at all, or with another than that they were shed."""
    counts = run["groups"]["all"]
    return (counts["failed_otherwise"] + counts["dropped"]) / _offered(counts)


def _beside_us(run: dict) -> float | None:
    """CPU beside the work for each request, µs."""
    if _failed_otherwise(run) > _MOST_FAILED:
        return None
    return run["beside_cores"] * run["seconds"] / _offered(run["groups"]["all"]) * 1e6


def _median(values: list[float | None]) -> float | None:
    return None if None in values or not values else statistics.median(values)


def work_of(run: dict) -> float:
    """Useful work, over one core."""
    return run["groups"]["all"]["useful"] / run["seconds"] / CAPACITY


def is_ceiling(run: dict | None) -> bool:
    """Whether others can be held against it."""
    return run is not None and little_stolen(run) and work_of(run) > 0


def _row(runs: list[dict], ceiling: list[dict | None]) -> dict:
    work = [work_of(run) for run in runs]
    classes = {
        name: {
            "share": statistics.median(_share(run["groups"]["by_criticality"][name]) for run in runs),
            "work": statistics.median(
                run["groups"]["by_criticality"][name]["useful"] / run["seconds"] / CAPACITY for run in runs
            ),
        }
        for name in CRITICALITIES
    }
    customers = [[_share(counts) for counts in run["groups"]["by_customer"].values()] for run in runs]
    return {
        "useful_work": statistics.median(work),
        # Beside that of the same round, so that what the machine did meanwhile cancels.
        "of_ceiling": _median([run / work_of(most) for run, most in zip(work, ceiling, strict=True) if is_ceiling(most)]),
        "low": min(work),
        "high": max(work),
        "by_criticality": classes,
        # Of customers who send alike: the least served over the best served.
        "customers_even": statistics.median(min(shares) / max(max(shares), 1e-9) for shares in customers),
        "p99_ms": _median([run["groups"]["all"]["useful_p99_ms"] for run in runs]),
        "work_cores": statistics.median(run["work_cores"] for run in runs),
        "beside_cores": statistics.median(run["beside_cores"] for run in runs),
        "beside_us": _median([_beside_us(run) for run in runs]),
        "failed_otherwise": statistics.median(_failed_otherwise(run) for run in runs),
        "sending_cores": max(run["sending_cores"] for run in runs),
        "send_lag_p99_ms": max(run["send_lag_p99_ms"] for run in runs),
        "stolen": max(run["stolen"] for run in runs),
    }


def summarise(runs: dict[str, dict[str, list[dict]]], ceiling: list[dict | None]) -> dict[str, dict[str, dict]]:
    """By contestant and load."""
    return {name: {load: _row(made, ceiling) for load, made in of.items()} for name, of in runs.items()}


def out_of_order(row: dict) -> list[str]:
    """The classes that are touched though a lower one is not gone."""
    shares = [(name, of["share"]) for name, of in row["by_criticality"].items()]
    return [
        name
        for at, (name, share) in enumerate(shares)
        if share < 1 - TOUCHED and any(lower >= GONE for _, lower in shares[at + 1 :])
    ]


def goals(summary: dict[str, dict[str, dict]]) -> list[Goal]:
    """Those that could be looked at."""
    return [goal for name in SUBJECTS for goal in _goals_of(name, summary.get(name, {}))]


def _goals_of(name: str, by_load: dict[str, dict]) -> list[Goal]:
    found = []
    most_critical, part = next(iter(CRITICALITIES.items()))
    for load, row in by_load.items():
        if float(load) == 10:
            at = f"useful work at {load} times the capacity, at least {USEFUL_WORK:g} of"
            for got, of in ((row["useful_work"], "it"), (row["of_ceiling"], "what the backend alone does when kept busy")):
                if got is not None:
                    found.append(Goal(name, f"{at} {of}", f"{got:.3f}", got >= USEFUL_WORK))
        if float(load) * part / sum(CRITICALITIES.values()) <= _FITS:
            share = row["by_criticality"][most_critical]["share"]
            says = f"{most_critical} useful at {load} times the capacity, at least {MOST_CRITICAL:g}"
            found.append(Goal(name, says, f"{share:.4f}", share >= MOST_CRITICAL))
        wrong = out_of_order(row)
        says = f"order of classes at {load} times the capacity"
        got = f"touched too early: {', '.join(wrong)}" if wrong else "as it should be"
        found.append(Goal(name, says, got, not wrong))
    return found
