"""Hosts with networks of their own on this machine, and links between them that a test makes silent.

Each host is a network namespace with one address. It has a link to this machine and one to each other host, so a host can
be cut off from the others while this machine reaches all. A cut drops packets without a word, as a broken switch does: the
neighbour's hardware address is a wrong one. It needs root.
"""

import ipaddress
import os
import pathlib
from itertools import combinations

from .etcd import Host
from .process import PORTS, Process, find_program, free_port, run, wait_until

# For tests between devices (RFC 2544). Each test has eight addresses, by a port that it alone has.
_ADDRESSES = ipaddress.ip_network("198.18.0.0/15")
_PER_TEST = 8
_NOBODY = "02:00:00:00:00:01"


def _ip(*arguments: str, enter: tuple[str, ...] = ()) -> None:
    done = run([*enter, find_program("ip"), *arguments])
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


class Networks:
    """`count` hosts, at most six."""

    def __init__(self, directory: pathlib.Path, count: int):
        assert os.geteuid() == 0, "network namespaces need root"
        assert count <= _PER_TEST - 2
        unit = free_port() - PORTS.start
        here, *addresses = (str(_ADDRESSES[unit * _PER_TEST + number]) for number in range(1, count + 2))
        self._cuts: set[tuple[int, int]] = set()
        self._links: list[str] = []
        # A namespace ends some time after the last process in it, and takes its links along.
        self._holders: list[Process] = []
        self.hosts: list[Host] = []
        try:
            for number, address in enumerate(addresses):
                self._add(directory, number, address, here, f"pl{unit}-{number}")
            for one, other in combinations(range(count), 2):
                self._link(one, other)
        except BaseException:
            self.close()
            raise

    def _add(self, directory: pathlib.Path, number: int, address: str, here: str, link: str) -> None:
        holder = Process(f"network-{number}", [find_program("unshare"), "--net", find_program("sleep"), "infinity"], directory)
        self._holders.append(holder)

        def network(pid: int | str) -> str:
            return os.readlink(f"/proc/{pid}/ns/net")

        wait_until("a network of its own", lambda: network(holder.pid) != network("self"))
        self.hosts.append(Host(address, (find_program("nsenter"), f"--net=/proc/{holder.pid}/ns/net", "--")))
        _ip("link", "add", link, "type", "veth", "peer", "name", "here", "netns", str(holder.pid))
        self._links.append(link)
        _ip("addr", "add", here, "peer", address, "dev", link)
        _ip("link", "set", link, "up")
        self._in(number, "link", "set", "lo", "up")
        self._in(number, "addr", "add", address, "peer", here, "dev", "here")
        self._in(number, "link", "set", "here", "up")

    def _link(self, one: int, other: int) -> None:
        pids = [str(self._holders[number].pid) for number in (one, other)]
        _ip("link", "add", f"to{other}", "netns", pids[0], "type", "veth", "peer", "name", f"to{one}", "netns", pids[1])
        for number, peer in ((one, other), (other, one)):
            addresses = ("addr", "add", self.hosts[number].address, "peer", self.hosts[peer].address)
            self._in(number, *addresses, "dev", f"to{peer}")
            self._in(number, "link", "set", f"to{peer}", "up")

    def _in(self, number: int, *arguments: str) -> None:
        _ip(*arguments, enter=self.hosts[number].enter)

    def isolate(self, host: int) -> None:
        """Makes the links of a host to all others silent. This machine still reaches it."""
        for other in range(len(self.hosts)):
            if other != host:
                self.cut(host, other)

    def cut(self, one: int, other: int) -> None:
        """Makes the link between two hosts silent."""
        for number, peer in ((one, other), (other, one)):
            address = self.hosts[peer].address
            self._in(number, "neigh", "replace", address, "lladdr", _NOBODY, "nud", "permanent", "dev", f"to{peer}")
        self._cuts.add((min(one, other), max(one, other)))

    def heal(self) -> None:
        """Ends all cuts."""
        for one, other in self._cuts:
            for number, peer in ((one, other), (other, one)):
                self._in(number, "neigh", "del", self.hosts[peer].address, "dev", f"to{peer}")
        self._cuts.clear()

    def close(self) -> None:
        for holder in self._holders:
            holder.kill()
        # Connections that still wait for a host that is cut off would hold it for minutes.
        for link in self._links:
            run([find_program("ip"), "link", "del", link])
