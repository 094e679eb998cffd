"""The rules of a fleet on etcd, checked on the log of its store and nothing else.

The log is what a watch from revision 1 tells: each change with its revision and the value before. A test may put the key
`QUIET` when nothing has happened for a while: the rules of balance hold then.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .etcd import Change

QUIET = "/quiet"


@dataclass(frozen=True)
class Keys:
    """The folders of one group of clients and one cluster."""

    group: str = "edge"
    service: str = "web"
    cluster: str = "web"
    prefix: str = "/plimsoll/v1/"

    @property
    def members(self) -> str:
        return f"{self.prefix}clients/{self.group}/members/"

    @property
    def numbers(self) -> str:
        return f"{self.prefix}clients/{self.group}/numbers/"

    @property
    def backends(self) -> str:
        return f"{self.prefix}services/{self.service}/backends/"

    @property
    def slots(self) -> str:
        return f"{self.prefix}services/{self.service}/slots/"

    @property
    def leader(self) -> str:
        return f"{self.prefix}ledger/{self.cluster}/{self.group}/leader"

    @property
    def assignments(self) -> str:
        return f"{self.prefix}ledger/{self.cluster}/{self.group}/of/"


@dataclass(frozen=True)
class Violation:
    """A rule that a change broke."""

    revision: int
    rule: str
    text: str


@dataclass
class Store:
    """The store at one revision."""

    values: dict[str, str] = field(default_factory=dict)

    def below(self, prefix: str) -> dict[str, str]:
        return {key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)}

    def apply(self, changes: list[Change]) -> "Store":
        values = dict(self.values)
        for change in changes:
            if change.value is None:
                values.pop(change.key, None)
            else:
                values[change.key] = change.value
        return Store(values)


@dataclass(frozen=True)
class Quiet:
    """What a ledger looks like when nothing has happened for a while."""

    name: str
    revision: int
    clients: frozenset[str]
    backends: frozenset[str]
    assignments: dict[str, frozenset[str]]

    def connections(self) -> dict[str, int]:
        """The clients of each backend."""
        counts = dict.fromkeys(self.backends, 0)
        for backend in itertools.chain.from_iterable(self.assignments.values()):
            counts[backend] = counts.get(backend, 0) + 1
        return counts


@dataclass(frozen=True)
class Moves:
    """What changed from one quiet moment to the next."""

    name: str
    events: int
    moved: int
    # ⌊C·k/(n+1)⌋ + 1 for each client or backend that came or went, with the fewer backends of the two moments.
    bound: int
    # The fewest with which each client has k backends, and any two backends differ by at most one.
    needed: int


def moves(before: Quiet, after: Quiet, size: int) -> Moves:
    """The connections that clients of both moments opened.

    A client that goes may need more than the bound: if its k backends were all among those with fewer clients, each of them
    needs another one, so k move. The bound holds for backends, and for clients on average.
    """
    events = len(before.clients ^ after.clients) + len(before.backends ^ after.backends)
    both = before.assignments.keys() & after.assignments.keys()
    moved = sum(len(after.assignments[client] - before.assignments[client]) for client in both)
    clients = max(len(before.clients), len(after.clients))
    backends = min(len(before.backends), len(after.backends))
    bound = events * (clients * size // (backends + 1) + 1)
    return Moves(after.name, events, moved, bound, fewest_moves(before, after, size))


def fewest_moves(before: Quiet, after: Quiet, size: int) -> int:
    """A lower bound: what clients lack, and what backends have too much of; or what backends lack, less what new clients bring."""
    if not after.backends:
        return 0
    wanted = min(size, len(after.backends))
    kept = {client: before.assignments[client] & after.backends for client in before.assignments.keys() & after.clients}
    counts = Counter(dict.fromkeys(after.backends, 0))
    for backends in kept.values():
        counts.update(backends)
    low, with_one_more = divmod(wanted * len(after.clients), len(after.backends))
    high = [count for count in counts.values() if count > low]
    too_many = sum(count - low - 1 for count in high) + max(0, len(high) - with_one_more)
    missing = sum(max(0, low - count) for count in counts.values())
    lacking = sum(max(0, wanted - len(backends)) for backends in kept.values())
    return max(lacking + too_many, missing - wanted * (len(after.clients) - len(kept)))


class History:
    """The log of a fleet, read once."""

    def __init__(self, changes: list[Change], size: int, keys: Keys | None = None):
        self.size, self.keys = size, keys or Keys()
        self.violations: list[Violation] = []
        self.quiet: list[Quiet] = []
        # Addresses since the last quiet moment: ready all the time, registered at any time.
        self._steady: set[str] = set()
        self._recent: set[str] = set()
        self._store = Store()
        by_revision = itertools.groupby(sorted(changes, key=lambda change: change.revision), key=lambda change: change.revision)
        for revision, group in by_revision:
            self._step(revision, list(group))
        for before, after in itertools.pairwise(self.quiet):
            counted = moves(before, after, size)
            if counted.moved > max(counted.bound, counted.needed):
                self._report(after.revision, "moves", f"{counted}")

    def all_moves(self) -> list[Moves]:
        return [moves(before, after, self.size) for before, after in itertools.pairwise(self.quiet)]

    def _report(self, revision: int, rule: str, text: str) -> None:
        self.violations.append(Violation(revision, rule, text))

    def _step(self, revision: int, changes: list[Change]) -> None:
        before, after = self._store, self._store.apply(changes)
        self._steady &= self._ready(after)
        self._recent |= self._registered(after)
        for change in changes:
            if change.key.startswith(self.keys.numbers):
                self._number(change, before, after, self.keys.numbers, self.keys.members)
            elif change.key.startswith(self.keys.slots):
                self._number(change, before, after, self.keys.slots, self.keys.backends)
            elif change.key == self.keys.leader:
                self._leader(change, before)
            elif change.key.startswith(self.keys.assignments):
                self._assignment(change, before)
        self._store = after
        if any(change.key == QUIET for change in changes):
            self._quiet(revision, after)

    def _number(self, change: Change, before: Store, after: Store, numbers: str, members: str) -> None:
        holder, was_live = change.before, f"{members}{change.before}" in before.values
        if change.value is not None and change.value != holder:
            if holder is not None and was_live:
                self._report(change.revision, "number", f"{change.key} was taken from {holder}, which is live, by {change.value}")
            if f"{members}{change.value}" not in before.values:
                self._report(change.revision, "number", f"{change.key} is of {change.value}, which is not live")
        # A live client deletes the record of its number if it has another one.
        if change.value is None and was_live and holder not in after.below(numbers).values():
            self._report(change.revision, "number", f"{change.key} was deleted, and {holder} is live without another")

    def _leader(self, change: Change, before: Store) -> None:
        if change.value is None:
            return
        if change.before is not None:
            self._report(change.revision, "leader", f"{change.value} took the lead from {change.before}, which had not ended")
        if f"{self.keys.members}{change.value}" not in before.values:
            self._report(change.revision, "leader", f"{change.value} leads and is not live")
        if change.lease == 0:
            self._report(change.revision, "leader", f"{change.value} leads for ever: without a lease")

    def _assignment(self, change: Change, before: Store) -> None:
        client = change.key.removeprefix(self.keys.assignments)
        if self.keys.leader not in before.values:
            self._report(change.revision, "writer", f"the assignment of {client} changed, and nobody led")
        is_live = f"{self.keys.members}{client}" in before.values
        if change.value is None:
            if is_live:
                self._report(change.revision, "assignment", f"that of {client}, which is live, was deleted")
            return
        old, new = addresses(change.before), addresses(change.value)
        if new is None:
            self._report(change.revision, "assignment", f"that of {client} is no list of addresses: {change.value!r}")
            return
        old = old or frozenset()
        if strangers := (new - old) - self._recent:
            self._report(change.revision, "registered", f"{client} got {sorted(strangers)}, not in the registry")
        # The leader learns of the registry later than the log: so a backend is gone if it is for all of the time.
        had, has = old & self._steady, new & self._recent
        if new - old and had - new:
            self._report(change.revision, "order", f"{client} lost {sorted(had - new)} with the write that added {sorted(new - old)}")
        if len(has) < min(self.size, len(had)):
            self._report(change.revision, "order", f"{client} has {len(has)} live backends and had {len(had)}")

    def _registered(self, store: Store) -> set[str]:
        return {address for address, _ in records(store.below(self.keys.backends).values())}

    def _ready(self, store: Store) -> set[str]:
        return ready(store.below(self.keys.backends).values())

    def _quiet(self, revision: int, store: Store) -> None:
        ready = frozenset(self._ready(store))
        self._steady, self._recent = set(ready), self._registered(store)
        read = {client: addresses(value) or frozenset() for client, value in store.below(self.keys.assignments).items()}
        quiet = Quiet(store.values[QUIET], revision, frozenset(store.below(self.keys.members)), ready, read)
        self.quiet.append(quiet)
        if self.keys.leader not in store.values:
            self._report(revision, "leader", f"nobody leads at {quiet.name}")
        if unlike := quiet.clients ^ read.keys():
            self._report(revision, "assignment", f"at {quiet.name} of {sorted(unlike)}: not one for each live client")
        wanted = min(self.size, len(ready))
        for client, assigned in read.items():
            if assigned - ready:
                self._report(revision, "registered", f"{client} has {sorted(assigned - ready)}, not ready at {quiet.name}")
            if len(assigned) != wanted:
                self._report(revision, "balance", f"{client} has {len(assigned)} backends at {quiet.name}, not {wanted}")
        counts = quiet.connections().values()
        if counts and max(counts) - min(counts) > 1:
            self._report(revision, "balance", f"backends have {min(counts)} to {max(counts)} clients at {quiet.name}")


def records(values: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The address and the state of each record that is one of a backend."""
    for value in values:
        try:
            record = json.loads(value)
            yield record["address"], record["state"]
        except (ValueError, KeyError, TypeError):
            continue


def ready(values: Iterable[str]) -> set[str]:
    return {address for address, state in records(values) if state == "ready"}


def addresses(value: str | None) -> frozenset[str] | None:
    """The backends of an assignment; `None` if it is none."""
    try:
        listed = json.loads(value) if value is not None else None
    except ValueError:
        return None
    is_list = isinstance(listed, list) and all(isinstance(address, str) for address in listed)
    return frozenset(listed) if is_list else None
