"""The set-ups, each said once: a scenario for the simulator and the processes of the real run are made from it.

Costs are milliseconds to tens of them and rates at most 500 requests a second, so that what proxy, load and network add is small beside the
work, and all processes together use a fraction of a core.
"""

from dataclasses import dataclass, field

# Mean cost of a request at a machine of speed 1, in milliseconds. A machine can do 50 requests a second.
COST_MS = 20
# Parts of the requests under overload, most critical first.
# At 2.5 times the capacity the first two ask for three quarters of it, and the third meets the limit.
CRITICALITIES = {"critical-plus": 10, "critical": 20, "sheddable-plus": 30, "sheddable": 40}
# Requests of the shedding set-ups are of use for this long; clients wait for no longer.
PATIENCE_MS = 1_000
# Fails every request at once, without work.
FAIL_FAST = "fail-fast"
# Speeds of unequal machines: the fastest does three times as much as the slowest.
UNEQUAL = (0.5, 0.75, 1.0, 1.25, 1.5)


@dataclass(frozen=True)
class Phase:
    """A part of the run with metrics of its own."""

    name: str
    seconds: float
    # At its beginning, not measured.
    settle: float = 0.0
    # Backends that are down in it, by number.
    down: tuple[int, ...] = ()


@dataclass(frozen=True)
class Setup:
    """What is predicted and then run."""

    name: str
    says: str
    # Of requests at a backend: "fcfs" or "sharing".
    discipline: str
    rate: float
    phases: tuple[Phase, ...]
    speeds: tuple[float, ...] = (1.0,)
    policy: str = "least-loaded"
    # TOML of the cluster, and of the arm where it differs in more than the name of the table.
    tables: dict[str, dict[str, object]] = field(default_factory=dict)
    # Attempts of a request; 1 for no retries.
    attempts: int = 1
    # Share of requests that fail, by the number of the backend, or `FAIL_FAST`.
    failing: dict[int, float | str] = field(default_factory=dict)
    zones: tuple[str, ...] = ()
    # Whether one backend protects itself, in place of a fleet.
    shedding: bool = False
    # Further lines of the arm, which the real run does not know: for wrong models.
    arm: dict[str, object] = field(default_factory=dict)
    # Mean cost in milliseconds.
    cost_ms: float = COST_MS

    @property
    def measured_phases(self) -> tuple[Phase, ...]:
        """All but a warm-up."""
        return tuple(phase for phase in self.phases if phase.seconds > phase.settle)

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)

    def backend(self, number: int) -> str:
        """Name of a backend, in the scenario and in results."""
        return f"b{number}"


def steady(warm_up: float, seconds: float) -> tuple[Phase, ...]:
    """One measured phase after a warm-up."""
    return (Phase("steady", warm_up + seconds, settle=warm_up),)


# Reports count from the first on, and are averaged over seconds: the run is short.
QUICK_WEIGHTS = {"weighted": {"blackout": "1s", "smoothing": "1s", "feedback": "4s"}}
NO_EJECTION = {"outlier": {"consecutive_failures": "off", "success_rate_stdev": "off"}}
# Short, so that ejection and return are seen several times.
EJECTION = {"outlier": {"interval": "2s", "min_requests": 20, "base_ejection": "2s", "max_ejection": "6s"}}
# A look at a lost backend each second.
BACKOFF = {"backoff": {"initial": "500ms", "max": "1s"}}


def setups(scale: float = 1.0) -> list[Setup]:
    """All of them; `scale` shortens what is measured."""

    def run(seconds: float, warm_up: float = 8) -> tuple[Phase, ...]:
        return steady(warm_up, seconds * scale)

    def outage(down: tuple[int, ...], seconds: float = 15) -> tuple[Phase, ...]:
        return (
            Phase("before", 5 + seconds * scale, settle=5),
            Phase("lost", seconds * scale, down=down),
            Phase("after", 4 + seconds * scale, settle=4),
        )

    def policy(name: str, discipline: str, rate: float, **settings: object) -> Setup:
        says = f"`{name}` over five machines of unequal speed, {'first come, first served' if discipline == 'fcfs' else 'sharing'}"
        return Setup(name, says, discipline, rate, speeds=UNEQUAL, policy=name, **settings)

    return [
        policy("round-robin", "fcfs", 90, phases=run(50)),
        policy("least-loaded", "sharing", 175, phases=run(50)),
        policy("weighted", "fcfs", 150, phases=run(45, 15), tables=QUICK_WEIGHTS),
        policy("p2c", "sharing", 160, phases=run(50)),
        policy("peak-ewma", "fcfs", 160, phases=run(50)),
        policy("prequal", "sharing", 160, phases=run(50)),
        Setup(
            "fail-fast",
            "one of five backends fails every request at once, and is not ejected",
            "fcfs",
            120,
            run(50),
            (1.0,) * 5,
            policy="round-robin",
            tables=NO_EJECTION,
            failing={0: FAIL_FAST},
        ),
        Setup(
            "ejection",
            "one of five backends fails half of its requests, and is ejected for 2 to 6 s at a time",
            "sharing",
            120,
            run(50),
            (1.0,) * 5,
            policy="round-robin",
            tables=EJECTION,
            failing={0: 0.5},
        ),
        Setup(
            "outage",
            "one of five backends is lost and returns; two retries within the budget",
            "fcfs",
            150,
            outage((4,)),
            (1.0,) * 5,
            tables=BACKOFF,
            attempts=3,
        ),
        Setup(
            "zone-lost",
            "one zone of three is lost and returns; no retries",
            "sharing",
            165,
            outage((2, 5)),
            (1.0,) * 6,
            policy="p2c",
            tables=BACKOFF,
            zones=("a", "b", "c"),
        ),
        Setup(
            "shedding-fcfs",
            "one backend at 2.5 times its capacity, first come, first served",
            "fcfs",
            500,
            run(50),
            shedding=True,
            cost_ms=5,
        ),
        Setup(
            "shedding-sharing",
            "the same where requests share the core",
            "sharing",
            500,
            run(50),
            shedding=True,
            cost_ms=5,
        ),
    ]
