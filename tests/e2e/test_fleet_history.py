"""The checker of a fleet's history finds each kind of wrong history, and nothing in a right one."""

import json

import pytest

from harness.etcd import Change
from harness.fleet_history import QUIET, History, Keys

KEYS = Keys()


class Log:
    """A history written by hand: each step is one revision."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.values: dict[str, str] = {}
        self.revision = 1

    def step(self, *pairs: tuple[str, str | None], lease: int = 0) -> "Log":
        self.revision += 1
        for key, value in pairs:
            self.changes.append(Change(self.revision, key, value, self.values.get(key), lease))
            self.values.pop(key, None)
            if value is not None:
                self.values[key] = value
        return self

    def join(self, *clients: str) -> "Log":
        return self.step(*((f"{KEYS.members}{client}", "1-0") for client in clients), lease=1)

    def leave(self, client: str) -> "Log":
        return self.step((f"{KEYS.members}{client}", None))

    def lead(self, client: str | None, lease: int = 1) -> "Log":
        return self.step((KEYS.leader, client), lease=lease)

    def register(self, *names: str, state: str = "ready") -> "Log":
        return self.step(*((f"{KEYS.backends}{name}", json.dumps({"address": name, "state": state})) for name in names), lease=1)

    def unregister(self, name: str) -> "Log":
        return self.step((f"{KEYS.backends}{name}", None))

    def assign(self, **of: str | None) -> "Log":
        return self.step(*((f"{KEYS.assignments}{client}", text if text is None else json.dumps(text.split())) for client, text in of.items()))

    def number(self, number: int, client: str | None) -> "Log":
        return self.step((f"{KEYS.numbers}{number}", client))

    def quiet(self, name: str = "quiet") -> "Log":
        return self.step((QUIET, name))

    def rules(self) -> list[str]:
        return [violation.rule for violation in History(self.changes, size=2).violations]


def ordinary() -> Log:
    """Three clients, each with two of the three backends."""
    log = Log().register("b1", "b2", "b3").join("p1", "p2", "p3").lead("p1")
    return log.assign(p1="b1 b2", p2="b2 b3", p3="b1 b3").quiet("started")


def test_right_history_has_no_violation() -> None:
    log = ordinary()
    for number in range(3):
        log.number(number, f"p{number + 1}")
    # A backend goes, after which all have the others.
    log.unregister("b1").assign(p1="b2 b3", p3="b2 b3").quiet("one less")
    # It comes back: some first have three, and then two.
    log.register("b1").assign(p1="b1 b2 b3", p3="b1 b2 b3").assign(p1="b1 b2", p3="b1 b3").quiet("back")
    # The leader goes. Its number is taken by the highest, whose own is deleted in the same step.
    log.leave("p1").lead(None).lead("p2").assign(p1=None).quiet("without its leader")
    log.step((f"{KEYS.numbers}2", None), (f"{KEYS.numbers}0", "p3"))
    history = History(log.changes, size=2)
    assert history.violations == []
    assert [(moves.events, moves.moved) for moves in history.all_moves()] == [(1, 2), (1, 2), (1, 0)]


@pytest.mark.parametrize(
    ("log", "rules"),
    [
        (ordinary().number(0, "p1").number(0, "p2"), ["number"]),
        (ordinary().number(0, "p9"), ["number"]),
        (ordinary().number(0, "p1").number(0, None), ["number"]),
        (ordinary().lead("p2"), ["leader"]),
        (ordinary().lead(None).lead("p9"), ["leader"]),
        (ordinary().lead(None).lead("p2", lease=0), ["leader"]),
        (ordinary().lead(None).assign(p1="b1 b2"), ["writer"]),
        (ordinary().lead(None).assign(p1=None), ["writer", "assignment"]),
        (ordinary().assign(p1=None), ["assignment"]),
        (ordinary().step((f"{KEYS.assignments}p1", "b1 b2")), ["assignment"]),
        (ordinary().assign(p1="b1 b2 b9"), ["registered"]),
        (ordinary().unregister("b1").assign(p1="b2 b3", p3="b2 b3").quiet().assign(p1="b1 b2 b3"), ["registered"]),
        # Added and removed at once, and removed without an addition.
        (ordinary().assign(p1="b2 b3"), ["order"]),
        (ordinary().assign(p1="b1"), ["order"]),
        (ordinary().register("b4").assign(p1="b4 b1"), ["order"]),
        # Quiet, but not as it has to be: no leader, a backend that is gone, too few, a client that is gone, a client without one.
        (ordinary().lead(None).quiet(), ["leader"]),
        (ordinary().unregister("b1").quiet(), ["registered"] * 2),
        (ordinary().register("b4").assign(p1="b1 b2 b3").quiet(), ["balance"] * 2),
        (ordinary().leave("p3").quiet(), ["assignment"]),
        (ordinary().join("p4").quiet(), ["assignment"]),
        (ordinary().register("b3", state="draining").quiet(), ["registered"] * 2),
        (ordinary().register("b4", "b5").quiet(), ["balance"]),
    ],
)
def test_each_violation_is_found(log: Log, rules: list[str]) -> None:
    assert log.rules() == rules


def test_more_moves_than_events_allow_are_found() -> None:
    log = ordinary().assign(p1="b1 b2 b3").assign(p1="b1 b3").assign(p3="b1 b2 b3").assign(p3="b2 b1")
    assert log.quiet("nothing happened").rules() == ["moves"]
    # One more backend may move two connections and one: ⌊3·2/4⌋ + 1 = 2 here.
    log = ordinary().register("b4")
    for client, both, last in (("p1", "b1 b2 b4", "b1 b4"), ("p2", "b2 b3 b4 b1", "b1 b4"), ("p3", "b1 b3 b2", "b2 b3")):
        log.assign(**{client: both}).assign(**{client: last})
    assert "moves" in log.quiet("too much for one").rules()


def test_client_that_goes_may_need_more_moves_than_a_backend() -> None:
    # Each of six backends has one of three clients, and one more client has two of them.
    log = Log().register(*(f"b{number}" for number in range(6))).join("p1", "p2", "p3", "p4").lead("p1")
    log.assign(p1="b0 b1", p2="b2 b3", p3="b4 b5", p4="b0 b1").quiet("started")
    log.leave("p3").assign(p3=None).assign(p1="b0 b1 b4", p4="b0 b1 b5").assign(p1="b0 b4", p4="b1 b5").quiet("one less")
    history = History(log.changes, size=2)
    assert history.violations == []
    (moves,) = history.all_moves()
    assert (moves.moved, moves.bound, moves.needed) == (2, 2, 2)
    # A third move was not needed, nor is it within the bound.
    log.assign(p2="b2 b3 b4").assign(p2="b2 b4").assign(p1="b0 b4 b3").assign(p1="b0 b3")
    log.changes = [change for change in log.changes if change.key != QUIET or change.value == "started"]
    assert log.quiet("one less").rules() == ["moves"]


def test_number_of_a_dead_holder_is_free() -> None:
    log = ordinary().number(0, "p1").leave("p1").number(0, "p2")
    assert log.rules() == []
    slots = Log().register("b1", "b2").step((f"{KEYS.slots}0", "b1")).step((f"{KEYS.slots}0", "b2"))
    assert slots.rules() == ["number"]
