"""The simulator's predictions beside real runs with emulated backends, in a short form of `bench/predict`.

All set-ups run at once, once for the module. A metric must lie within T standard deviations of 100 simulated runs, times
sqrt(1 + 1/100), of their mean. For a right model the ratio has Student's t distribution with 99 degrees of freedom, if the metric
is about normal over runs: shares and percentiles of a thousand requests and more. T = 6 leaves 3e-8 outside, so that all 20
comparisons together raise a false alarm with a chance below 1e-6.

The machine may be busy. Set-ups with a latency measure what a request takes without work beside them, and the scenario has it as
its network delay. Emulated cores go on while their process waits for a core, so shares hardly depend on that.

Each set-up also has a wrong model: the mistake that the test would catch. Its prediction must not hold for the same run.
"""

import concurrent.futures
import dataclasses
import pathlib
import sys

import pytest

from harness.fleet import PLIMSOLL, ROOT

sys.path.append(str(ROOT / "bench"))

from predictions import compare, forecast, real, setups  # noqa: E402

pytestmark = pytest.mark.alone

SEEDS = range(1, 101)
T = 6.0
# The 99th percentile over the median. Expensive requests wait for cheap ones where they share the core; in order all wait alike.
TAIL = "steady.p99/p50"
# Of the time that `bench/predict` measures. Shedding is measured for all of it: of half, the tails of both disciplines overlap at
# six deviations (3.7 ± 3.5 in order, 10.4 ± 4.8 shared).
SCALE, SHEDDING_SCALE = 0.5, 1.0


@dataclasses.dataclass(frozen=True)
class Case:
    """What is compared of a set-up, and what a wrong model of it says."""

    metrics: tuple[str, ...]
    # The mistake, and the fields of the set-up that have it.
    mistake: str
    wrong: dict[str, object]


CASES = {
    "least-loaded": Case(
        ("steady.share.b0", "steady.share.b4", "steady.p50", "steady.p90"),
        "all machines have the same speed",
        {"speeds": (1.0,) * 5},
    ),
    "prequal": Case(
        ("steady.share.b0", "steady.share.b4", "steady.p50"),
        "reports of load and latency are ignored: picks are even",
        {"policy": "random"},
    ),
    "fail-fast": Case(
        ("steady.share.b0", "steady.error_share"),
        "failures count as successes",
        {"arm": {"failures": "unseen"}},
    ),
    "outage": Case(
        ("lost.share.b0", "attempts_per_request", "after.share.b4"),
        "a lost backend does not return",
        {},
    ),
    "shedding-fcfs": Case(
        ("steady.shed_share", "steady.sheddable-plus.shed_share", TAIL),
        "requests share the core",
        {"discipline": "sharing"},
    ),
    "shedding-sharing": Case(
        ("steady.shed_share", "steady.sheddable-plus.shed_share", TAIL),
        "requests are served in order",
        {"discipline": "fcfs"},
    ),
}
SHORT = {setup.name: setup for setup in setups.setups(SCALE) if setup.name in CASES}
SHORT |= {setup.name: setup for setup in setups.setups(SHEDDING_SCALE) if setup.name in CASES and "shedding" in setup.name}


@dataclasses.dataclass(frozen=True)
class Runs:
    """The real runs, and the time of a request without work."""

    overhead: float
    by_setup: dict[str, dict]
    directory: pathlib.Path

    def rows(self, setup: setups.Setup) -> list[compare.Row]:
        """The compared metrics, with the prediction of this set-up, which may be a wrong one."""
        metrics = CASES[setup.name].metrics
        parts = ("steady.p50", "steady.p99", *(name for name in metrics if name != TAIL))
        names = parts if TAIL in metrics else metrics
        predicted = forecast.predict(setup, self.overhead, PLIMSOLL, self.directory, SEEDS, names)
        measured = dict(self.by_setup[setup.name]["metrics"])
        if TAIL in metrics:
            pairs = zip(predicted["steady.p99"].values, predicted["steady.p50"].values, strict=True)
            predicted[TAIL] = forecast.Forecast(tuple(p99 / p50 for p99, p50 in pairs))
            measured[TAIL] = measured["steady.p99"] / measured["steady.p50"]
        return compare.rows(setup.name, {name: predicted[name] for name in metrics}, measured, T)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    directory = tmp_path_factory.mktemp("predict")
    with concurrent.futures.ThreadPoolExecutor(len(SHORT) + 1) as pool:
        overhead = pool.submit(real.overhead, PLIMSOLL, directory / "overhead", 15)
        made = {
            setup.name: pool.submit(real.run, setup, PLIMSOLL, directory / setup.name) for setup in SHORT.values()
        }
        by_setup = {name: run.result() for name, run in made.items()}
        return Runs(overhead.result(), by_setup, directory)


def told(row: compare.Row) -> str:
    return f"{row.metric}: predicted {row.predicted:.4g} ± {row.spread:.2g}, measured {row.measured:.4g}"


@pytest.mark.parametrize("name", CASES)
def test_real_run_is_within_the_spread_of_predictions(runs: Runs, name: str) -> None:
    rows = runs.rows(SHORT[name])
    outside = [told(row) for row in rows if not row.is_in_spread]
    assert not outside, f"{outside}; the load was late by {runs.by_setup[name]['lag_ms']:.1f} ms"


def wrong(name: str) -> setups.Setup:
    """The set-up with the mistake of its case."""
    setup = SHORT[name]
    if name == "outage":
        *before, after = setup.phases
        return dataclasses.replace(setup, phases=(*before, dataclasses.replace(after, down=(4,))))
    return dataclasses.replace(setup, **CASES[name].wrong)


@pytest.mark.parametrize("name", CASES)
def test_wrong_model_is_outside_of_it(runs: Runs, name: str) -> None:
    rows = runs.rows(wrong(name))
    assert not all(row.is_in_spread for row in rows), f"not caught: {CASES[name].mistake}: {[told(row) for row in rows]}"


def test_emulated_backends_use_little_cpu(runs: Runs) -> None:
    # Proxy and backends together; a real core at this load would use 0.6 to 1 for each backend.
    used = {name: run["cores"] for name, run in runs.by_setup.items()}
    assert max(used.values()) < 0.5, used
