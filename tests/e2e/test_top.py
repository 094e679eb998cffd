"""`plimsoll top`, `tap` and `status`: they agree with the API, follow an overload, and leave the terminal as it was."""

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

from harness.fleet import PLIMSOLL, Fleet, Proxy, config, http
from harness.process import find_program, free_port, run, wait_until

# One core is full at 200 requests a second.
COST = ("--cost", "fixed:5ms", "--cores", "1")
CUSTOMERS = 'trust_criticality = "critical-plus"\ncustomer_header = "x-customer"'
OVERLOAD = ("--rate", "400", "--criticality", "critical=20,sheddable=80", "--duration", "3m", "--header")
# Ends the screen, shows the cursor.
RESTORED = "\x1b[?1049l"
CURSOR = "\x1b[?25h"


def admin(proxy: Proxy) -> str:
    return proxy.admin.url.removeprefix("http://")


def sidecar(fleet: Fleet) -> Proxy:
    """A proxy that protects a backend, and has seen it."""
    backend = fleet.backend(*COST)
    inbound = f"[clusters.main.inbound]\npid = {backend.pid}\ncpus = 1.0\n"
    proxy = fleet.proxy([backend.address], listener=CUSTOMERS, further=inbound)
    proxy.admin.wait_for_healthy(1)
    wait_until("the process is seen", lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1)
    return proxy


def overloaded(fleet: Fleet, customer: str = "acme") -> Proxy:
    """A proxy that sheds requests of a customer."""
    proxy = sidecar(fleet)
    fleet.load(proxy.url, *OVERLOAD, f"x-customer: {customer}")

    def sheds() -> bool:
        demand = proxy.admin.json("/api/v1/live")["cluster"]["demand"]
        return any(row["shed_qps"] > 10 for row in demand)

    wait_until("requests are shed", sheds, 30)
    return proxy


def top(*arguments: str, seconds: float = 30) -> subprocess.CompletedProcess[str]:
    return run([PLIMSOLL, "top", *arguments], seconds)


class Lines:
    """A command whose lines are read as they come."""

    def __init__(self, *arguments: str):
        self._child = subprocess.Popen([PLIMSOLL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[tuple[float, str]] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self._child.stdout, lambda line: self.lines.append((time.monotonic(), line)))),
            threading.Thread(target=self._read, args=(self._child.stderr, self.errors.append)),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream, keep) -> None:
        for line in stream:
            keep(line.rstrip("\n"))

    def texts(self) -> list[str]:
        return [line for _, line in self.lines]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self._child.poll() is None:
            self._child.send_signal(number)
        code = self._child.wait(10)
        for reader in self._readers:
            reader.join(10)
        return code


class Terminal:
    """A command on a terminal of its own, which understands what this program writes: text, places, a cleared screen."""

    def __init__(self, *arguments: str, program: str = PLIMSOLL, size: tuple[int, int] = (40, 120), **environment: str):
        self.parent, child = pty.openpty()
        self.size = size
        self._cells: dict[tuple[int, int], str] = {}
        self._place = (1, 1)
        self._unread = ""
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.before = termios.tcgetattr(child)
        self.child_end = child
        self.process = subprocess.Popen(
            [find_program("setsid"), "--ctty", program, *arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
        self.output = ""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def read(self, seconds: float = 0.1) -> None:
        """Takes what comes in this time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.parent], [], [], left)[0]:
                try:
                    self._show(self._decode(os.read(self.parent, 65536)))
                except OSError:
                    return

    def _show(self, text: str) -> None:
        self.output += text
        self._unread += text
        while self._unread:
            if not self._unread.startswith("\x1b"):
                self._cells[self._place] = self._unread[0]
                self._place = (self._place[0], self._place[1] + 1)
                self._unread = self._unread[1:]
            elif found := re.match(r"\x1b\[([0-9;?]*)([a-zA-Z])", self._unread):
                self._unread = self._unread[found.end() :]
                if found[2] == "H":
                    row, column = (found[1] or "1;1").split(";")
                    self._place = (int(row), int(column))
                elif found[2] == "J":
                    self._cells.clear()
            else:
                return

    def screen(self) -> str:
        rows, columns = self.size
        line = lambda row: "".join(self._cells.get((row, column), " ") for column in range(1, columns + 1)).rstrip()
        return "\n".join(line(row) for row in range(1, rows + 1))

    def wait_for(self, text: str, seconds: float = 10) -> None:
        """Waits until the text is on the screen."""
        try:
            wait_until(f"{text!r} on the screen", lambda: (self.read(), text in self.screen())[1], seconds)
        except AssertionError:
            raise AssertionError(f"no {text!r} on the screen:\n{self.screen()}") from None

    def type(self, keys: str) -> None:
        os.write(self.parent, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        self.size = (rows, columns)
        self._cells.clear()
        fcntl.ioctl(self.child_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def end(self) -> int:
        code = wait_until("it ends", lambda: (self.read(), self.process.poll())[1] is not None and [self.process.returncode])[0]
        self.read()
        return code

    def is_restored(self) -> bool:
        after = termios.tcgetattr(self.child_end)
        return after == self.before and self.output.rfind(RESTORED) > self.output.rfind("\x1b[?1049h") and CURSOR in self.output

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(5)
        os.close(self.parent)
        os.close(self.child_end)


@pytest.fixture
def terminals():
    open_ones: list[Terminal] = []

    def start(*arguments: str, **settings) -> Terminal:
        open_ones.append(Terminal(*arguments, **settings))
        return open_ones[-1]

    yield start
    for each in open_ones:
        each.close()


def test_once_and_json_agree_with_the_api(fleet: Fleet) -> None:
    proxy = overloaded(fleet)
    shown = top("--admin", admin(proxy), "--once", "--json")
    assert shown.returncode == 0, shown.stderr
    shown, live = json.loads(shown.stdout), proxy.admin.json("/api/v1/live")
    assert shown.keys() == live.keys() and shown["cluster"].keys() == live["cluster"].keys()
    assert abs(shown["at"] - live["at"]) < 5
    assert shown["process"]["name"] == live["process"]["name"]
    offered = [sum(row["offered_cpus"] for row in answer["cluster"]["demand"]) for answer in (shown, live)]
    assert offered[0] == pytest.approx(offered[1], rel=0.5), offered
    text = top("--admin", admin(proxy), "--once")
    assert text.returncode == 0 and text.stderr == ""
    gate = live["cluster"]["gate"]
    verdict = {"users-affected": "USERS AFFECTED", "as-intended": "SHEDDING AS INTENDED", "capacity-short": "CAPACITY SHORT"}
    assert any(f"{word} for" in text.stdout for word in verdict.values()), text.stdout
    assert f"of {gate['capacity_cpus']:.2f}" in text.stdout
    assert live["cluster"]["backends"]["rows"][0]["address"] in text.stdout
    assert re.search(r"^sheddable +[\d.]+ +[\d.]+ +[\d.]+ +overloaded [\d.]+$", text.stdout, re.MULTILINE), text.stdout
    assert "░" in text.stdout, "the chart shows the shed load"
    assert "\x1b" not in text.stdout


def test_lines_come_each_second_and_json_lines_too(fleet: Fleet) -> None:
    proxy = overloaded(fleet)
    lines, objects = Lines("top", admin(proxy)), Lines("top", admin(proxy), "--json")
    wait_until("five of each", lambda: len(lines.lines) >= 5 and len(objects.lines) >= 5)
    assert (lines.end(), objects.end(signal.SIGINT)) == (0, 0)
    form = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ main [a-z-]+ +offered \S+ admitted \S+ shed \S+ CPUs, used \S+/1\.00 CPUs, healthy 1/1"
    assert all(re.fullmatch(form, line) for line in lines.texts()), lines.texts()
    times = [at for at, _ in lines.lines]
    assert 2.5 < times[4] - times[0] < 6, times
    moments = [json.loads(line)["at"] for line in objects.texts()]
    assert moments == sorted(set(moments))
    assert json.loads(objects.texts()[-1])["cluster"]["name"] == "main"
    # A reader that ends, as `head`, ends it.
    done = run(["sh", "-c", f"{PLIMSOLL} top {admin(proxy)} --json | head -1"], 10)
    assert json.loads(done.stdout)["cluster"]["name"] == "main" and done.stderr == ""


def test_restart_of_the_proxy_is_told_and_survived(fleet: Fleet) -> None:
    backend = fleet.backend()
    proxy = fleet.proxy([backend.address])
    lines = Lines("top", admin(proxy))
    wait_until("a line", lambda: lines.lines)
    proxy.kill()
    wait_until("the break is told", lambda: any(line.startswith("# no answer from ") for line in lines.texts()))
    again = fleet._ready(Proxy("proxy-again", proxy.command[2:], proxy.port, proxy.admin.port, fleet.directory))
    again.admin.wait_for_healthy(1)
    wait_until("the return is told", lambda: any(line.endswith(" answers again") for line in lines.texts()))
    told = len(lines.lines)
    wait_until("it goes on", lambda: len(lines.lines) >= told + 2)
    assert lines.end() == 0
    assert sum(line.startswith("#") for line in lines.texts()) == 2, lines.texts()


def test_fleet_adds_up_the_proxies_that_answer(fleet: Fleet) -> None:
    proxies = [fleet.proxy([fleet.backend().address, fleet.backend().address]) for _ in range(2)]
    for proxy in proxies:
        proxy.admin.wait_for_healthy(2)
    missing = f"127.0.0.1:{free_port()}"
    shown = top(*map(admin, proxies), missing, "--once", "--json")
    assert shown.returncode == 0, shown.stderr
    shown = json.loads(shown.stdout)
    assert (shown["answering"], shown["sums"]["healthy"], shown["sums"]["backends"]) == (2, 4, 4)
    assert "Connection refused" in shown["proxies"][2]["error"] and shown["proxies"][2]["live"] is None
    lines = Lines("top", *map(admin, proxies), missing)
    wait_until("two lines", lambda: len([line for line in lines.texts() if "2/3 proxies" in line]) >= 2)
    assert lines.end() == 0
    assert any("healthy 4/4" in line for line in lines.texts()), lines.texts()
    text = top(*map(admin, proxies), missing, "--once").stdout
    assert "all 3, 2 answer" in text and missing in text


def test_errors_name_the_place_and_the_help(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.backend().address])
    missing = f"127.0.0.1:{free_port()}"
    for command in ("top", "tap"):
        done = run([PLIMSOLL, command, "--admin", missing], 20)
        assert done.returncode == 2 and f"no proxy at {missing}" in done.stderr and "help: " in done.stderr, done.stderr
    done = top(admin(proxy), "--cluster", "none", "--once")
    assert done.returncode == 1 and 'there is no cluster "none"' in done.stderr and "help: " in done.stderr
    done = top("nowhere", "--once")
    assert done.returncode == 2 and "edge-1:9900" in done.stderr
    off = fleet.proxy([fleet.backend().address], further='[explain]\nentries = "off"\n')
    done = run([PLIMSOLL, "tap", "--admin", admin(off)], 20)
    assert done.returncode == 1 and "[explain]" in done.stderr and "help: " in done.stderr, done.stderr


def test_keys_filter_sort_and_drain_after_a_confirmation(fleet: Fleet, terminals) -> None:
    backends = [fleet.backend().address for _ in range(2)]
    proxy = fleet.proxy(backends)
    proxy.admin.wait_for_healthy(2)
    screen = terminals("top", admin(proxy))
    screen.wait_for("Backends: 2 of 2 healthy")
    screen.type("s")
    screen.wait_for("by requests")
    screen.type("/" + backends[1].removeprefix("127.0.0.1"))
    screen.wait_for("Enter keeps it")
    screen.type("\r")
    screen.wait_for("? help")
    screen.type("d")
    screen.wait_for("Drain this backend?")
    screen.type("n")
    screen.wait_for("nothing was changed")
    assert set(proxy.admin.states().values()) == {"healthy"}
    screen.type("d")
    screen.wait_for("Drain this backend?")
    screen.type("y")
    screen.wait_for(f"drained {backends[1]}")
    assert proxy.admin.states() == {backends[0]: "healthy", backends[1]: "lame-duck"}
    screen.type("D")
    screen.wait_for("Undrain this backend?")
    screen.type("y")
    screen.wait_for(f"undrained {backends[1]}")
    proxy.admin.wait_for_healthy(2)
    screen.type("?")
    screen.wait_for("Ctrl-C")
    screen.type("xq")
    assert screen.end() == 0 and screen.is_restored(), screen.output[-200:]


def test_screen_follows_an_overload_and_taps_it(fleet: Fleet, terminals) -> None:
    proxy = overloaded(fleet)
    screen = terminals("top", admin(proxy))
    screen.wait_for("overloaded")
    screen.type("r")
    screen.type("\x1b[F")
    screen.type("t")
    screen.wait_for("sheddable, as they happen")
    screen.wait_for("more work than it can do")
    screen.type("\x1b")
    screen.wait_for("CRITICALITY")
    screen.type("e")
    screen.wait_for("Latest refusals of cluster main, criticality sheddable")
    screen.wait_for("more work than it can do")
    screen.resize(10, 40)
    screen.wait_for("The terminal is too small: 40×10")
    screen.resize(40, 120)
    screen.wait_for("Latest refusals")
    screen.type("\x03")
    assert screen.end() == 0 and screen.is_restored()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_give_the_terminal_back(fleet: Fleet, terminals, number: signal.Signals) -> None:
    proxy = fleet.proxy([fleet.backend().address])
    screen = terminals("top", admin(proxy))
    screen.wait_for("Backends:")
    screen.process.send_signal(number)
    assert screen.end() == 0 and screen.is_restored()


def test_a_shell_can_stop_it_and_go_on(fleet: Fleet, terminals) -> None:
    proxy = fleet.proxy([fleet.backend().address])
    shell = terminals("--norc", "--noprofile", "-i", program=find_program("bash"), PS1="ready> ")
    shell.wait_for("ready>")
    shell.type(f"{PLIMSOLL} top {admin(proxy)}\r")
    shell.wait_for("Backends: 1 of 1 healthy")
    shell.type("\x1a")
    wait_until("it is stopped", lambda: (shell.read(), "Stopped" in shell.output)[1])
    assert shell.output.rfind(RESTORED) > shell.output.rfind("\x1b[?1049h"), "the shell has its own screen"
    shell.type("fg\r")
    shell.wait_for("Backends: 1 of 1 healthy")
    shell.type("q")

    def is_back() -> bool:
        shell.read()
        after = shell.output.rsplit("\x1b[?1049h", 1)[1]
        return RESTORED in after and "ready>" in after

    wait_until("the prompt is back", is_back)
    shell.type("echo left with $?\r")
    wait_until("it ends", lambda: (shell.read(), "left with 0" in shell.output)[1])
    shell.type("exit\r")
    assert shell.end() == 0


def test_no_color_writes_no_colour(fleet: Fleet, terminals) -> None:
    proxy = fleet.proxy([fleet.backend().address])
    proxy.admin.wait_for_healthy(1)
    colour = re.compile(r"\x1b\[(?:\d+;)*3[0-7]\b|\x1b\[[0-9;]*38;5;")
    for environment, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        screen = terminals("top", admin(proxy), **environment)
        screen.wait_for("● healthy")
        screen.type("q")
        assert screen.end() == 0
        assert bool(colour.search(screen.output)) == is_coloured, screen.output


def test_tap_shows_a_refusal_within_a_second_with_its_reason(fleet: Fleet) -> None:
    backend = fleet.backend().address
    only = lambda port, admin_port: config(port, admin_port, [backend]).replace("[[routes]]", '[[routes]]\npath_prefix = "/only"')
    proxy = fleet.proxy_of(only)
    tap = Lines("tap", "--admin", admin(proxy), "--reason", "overloaded")
    every = Lines("tap", "--admin", admin(proxy), "--json")
    wait_until("the header", lambda: tap.lines)
    time.sleep(1)
    begun = time.monotonic()
    assert http(proxy.url + "/elsewhere")[0] == 404
    wait_until("it is told", lambda: every.lines, 5)
    told = json.loads(every.texts()[0])
    assert every.lines[0][0] - begun < 1, "within a second"
    assert (told["outcome"], told["status"], told["reason"], told["path"]) == ("refused", 404, "no-route", "/elsewhere")
    assert (tap.end(), every.end()) == (0, 0)
    assert tap.texts()[0].startswith("TIME ") and len(tap.texts()) == 1, "another reason is not told"


def test_tap_of_an_overload_filters_and_ends_by_itself(fleet: Fleet) -> None:
    proxy = overloaded(fleet)
    begun = time.monotonic()
    done = run([PLIMSOLL, "tap", "--admin", admin(proxy), "--customer", "acme", "--criticality", "sheddable", "--for", "3s"], 30)
    assert done.returncode == 0 and 2.9 < time.monotonic() - begun < 10, done.stderr
    header, *lines = done.stdout.splitlines()
    assert header.startswith("TIME ") and lines, done.stdout
    for line in lines:
        form = r"\d\d:\d\d:\d\d\.\d{3}  \S+ +main +acme +sheddable +overloaded\S* +[\d.]+ ms  GET /: .*more work than it can do.*, pressure \w+"
        assert re.fullmatch(form, line), line
    other = run([PLIMSOLL, "tap", "--admin", admin(proxy), "--customer", "other", "--for", "1s"], 30)
    assert other.returncode == 0 and len(other.stdout.splitlines()) == 1, other.stdout
    # The id is that of `plimsoll explain`.
    identity = lines[-1].split()[1]
    explained = run([PLIMSOLL, "explain", "--admin", admin(proxy), identity], 20)
    assert explained.returncode == 0 and "customer    acme" in explained.stdout, explained


def test_hostile_names_control_no_terminal(fleet: Fleet, terminals) -> None:
    # A control character of ASCII is no part of a header: the proxy refuses it.
    proxy = overloaded(fleet, "evil\x9b31m\u202e")
    tap = ("tap", "--admin", admin(proxy), "--for", "1s")
    texts = [
        top(admin(proxy), "--once").stdout,
        top(admin(proxy), "--once", "--json").stdout,
        run([PLIMSOLL, *tap], 20).stdout,
        run([PLIMSOLL, *tap, "--json"], 20).stdout,
    ]
    assert all("evil" in text for text in texts), texts
    screen = terminals("top", admin(proxy))
    screen.wait_for("evil")
    screen.type("q")
    assert screen.end() == 0
    for text in [*texts, screen.output]:
        assert "\x9b" not in text and "\u202e" not in text and "evil\x1b" not in text
    for text in texts:
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), repr(text)


def test_status_tells_the_verdict_of_each_cluster(fleet: Fleet) -> None:
    proxy = overloaded(fleet)
    done = run([PLIMSOLL, "status", "--admin", admin(proxy)], 20)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  cluster +main: 1 of 1 backends healthy\n +[✕◒▲] [a-z ]+ for [\d.]+ \w+: ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^ +[\d.]+ of 1\.00 CPUs used, load line [\d.]+$", done.stdout, re.MULTILINE), done.stdout
    plain = fleet.proxy([fleet.backend().address])
    plain.admin.wait_for_healthy(1)
    done = run([PLIMSOLL, "status", "--admin", admin(plain)], 20)
    assert done.stdout.splitlines()[-1].strip().startswith("cluster"), "without a gate nothing is added"


def test_a_viewer_beyond_the_most_still_sees(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.backend().address])
    proxy.admin.wait_for_healthy(1)
    taps = [Lines("tap", "--admin", admin(proxy)) for _ in range(16)]
    wait_until("all watch", lambda: all(tap.lines for tap in taps), 30)
    try:
        lines = Lines("top", admin(proxy))
        wait_until("it polls", lambda: len(lines.lines) >= 2)
        assert lines.end() == 0 and not any(line.startswith("#") for line in lines.texts()), lines.texts()
        done = run([PLIMSOLL, "tap", "--admin", admin(proxy)], 20)
        assert done.returncode == 1 and "16 pages or programs watch already" in done.stderr
    finally:
        codes = [tap.end() for tap in taps]
    assert set(codes) == {0}
