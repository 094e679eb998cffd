"""The prediction: a set-up as a scenario, run by `plimsoll sim` over many seeds."""

import json
import pathlib
import statistics
import subprocess
from dataclasses import dataclass

from .setups import CRITICALITIES, FAIL_FAST, PATIENCE_MS, Setup

# Enough that the standard deviation of one run is known to a sixth.
SEEDS = range(1, 21)
ARM = "predicted"
# Latencies beyond this are not told apart by either side.
TIMEOUT = "10s"


@dataclass(frozen=True)
class Forecast:
    """A metric over the seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation of one run."""
        return statistics.stdev(self.values)


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def _lines(**settings: object) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in settings.items()]


def _seconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _phases(setup: Setup) -> list[str]:
    lines, at = [], 0.0
    for phase in setup.phases:
        lines += ["[[phases]]", *_lines(name=phase.name, at=_seconds(at), settle=_seconds(phase.settle) if phase.settle else "off")]
        at += phase.seconds
    return lines


def _timeline(setup: Setup) -> list[dict]:
    """When backends go down and return."""
    events, at, down = [], 0.0, set()
    for phase in setup.phases:
        for number in sorted(set(phase.down) ^ down):
            conduct = "down" if number in phase.down else "serve"
            events.append({"kind": "conduct", "at": _seconds(at), "conduct": conduct, "group": setup.backend(number)})
        down = set(phase.down)
        at += phase.seconds
    return events


def fleet(setup: Setup, overhead: float) -> str:
    """The scenario of a fleet; `overhead` is what a request takes beside its work, in seconds."""
    lines = _lines(
        name=setup.name,
        kind="fleet",
        duration=_seconds(setup.seconds),
        warmup=_seconds(setup.phases[0].settle),
        arrivals={"kind": "rate", "per_second": setup.rate},
        cost={"kind": "exponential", "mean": f"{setup.cost_ms}ms"},
        timeline=_timeline(setup),
    )
    lines += ["[clients]", "count = 1", "[requests]", *_lines(timeout=TIMEOUT)]
    lines += ["[network]", *_lines(delay=f"{round(overhead * 1e6 / 2)}us")]
    for number, speed in enumerate(setup.speeds):
        lines += ["[[backends]]", *_lines(name=setup.backend(number), count=1, speed=speed)]
        if setup.discipline == "fcfs":
            lines += _lines(concurrency=1)
        if setup.zones:
            lines += _lines(zones=[setup.zones[number % len(setup.zones)]])
        if (share := setup.failing.get(number)) is not None:
            lines += _lines(conduct=FAIL_FAST if share == FAIL_FAST else {"kind": "err", "share": share})
    lines += _phases(setup)
    retries = "none" if setup.attempts == 1 else {"kind": "budgeted", "attempts": setup.attempts}
    lines += ["[[arms]]", *_lines(name=ARM, policy=setup.policy, retries=retries, **setup.arm)]
    for table, settings in setup.tables.items():
        lines += [f"[arms.{table}]", *_lines(**settings)]
    return "\n".join([*lines, ""])


def shedding(setup: Setup, overhead: float) -> str:
    """The scenario of one server that protects itself."""
    del overhead
    lines = _lines(
        name=setup.name,
        kind="shedding",
        duration=_seconds(setup.seconds),
        warmup=_seconds(setup.phases[0].settle),
        cost={"kind": "exponential", "mean": f"{setup.cost_ms}ms"},
        patience=f"{PATIENCE_MS}ms",
        # Emulated cores spend nothing on a rejection.
        rejection="1ns",
    )
    if setup.discipline == "fcfs":
        lines += _lines(concurrency=1)
    for name, part in CRITICALITIES.items():
        rate = setup.rate * part / sum(CRITICALITIES.values())
        lines += ["[[sources]]", *_lines(name=name, criticality=name, rate=rate)]
    lines += _phases(setup)
    lines += ["[[arms]]", *_lines(name=ARM, shedder="ranked")]
    return "\n".join([*lines, ""])


def scenario(setup: Setup, overhead: float) -> str:
    return shedding(setup, overhead) if setup.shedding else fleet(setup, overhead)


def metrics(setup: Setup) -> list[str]:
    """The metrics that are compared, by the names of the simulator without the arm."""
    names = []
    for phase in setup.measured_phases:
        if setup.shedding:
            names += [f"{phase.name}.p50", f"{phase.name}.p99", f"{phase.name}.shed_share"]
            names += [f"{phase.name}.{name}.shed_share" for name in CRITICALITIES]
            continue
        shares = [f"share.{setup.backend(number)}" for number in range(len(setup.speeds)) if number not in phase.down]
        names += [f"{phase.name}.{name}" for name in (*shares, "p50", "p90", "p99", "error_share")]
    # Of the whole run: a request belongs to the phase of its arrival, but a counter of the proxy to that of the attempt.
    return names if setup.shedding else [*names, "attempts_per_request"]


def predict(
    setup: Setup,
    overhead: float,
    program: str,
    directory: pathlib.Path,
    seeds: range = SEEDS,
    names: tuple[str, ...] | None = None,
) -> dict[str, Forecast]:
    """Each metric over the seeds; without `names`, all that are compared."""
    names = metrics(setup) if names is None else names
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{setup.name}.toml"
    path.write_text(scenario(setup, overhead))
    runs = []
    for seed in seeds:
        command = [program, "sim", "run", str(path), "--json", "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        runs.append(json.loads(done.stdout)["metrics"])
    # A quantile of nothing has no value; it counts as nothing.
    return {name: Forecast(tuple(run.get(f"{ARM}.{name}", 0.0) for run in runs)) for name in names}
