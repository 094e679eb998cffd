"""`plimsoll check`: right files pass, wrong ones are told all that is wrong with them at once."""

import pathlib
import socket

import pytest

from harness.fleet import PLIMSOLL, ROOT
from harness.process import run

EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
BAD = sorted((ROOT / "tests" / "bad-configs").glob("*.toml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example_passes(file: pathlib.Path) -> None:
    done = run([PLIMSOLL, "check", "-c", str(file)])
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_printed_config_is_a_config_that_prints_the_same(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    first = run([PLIMSOLL, "check", "-c", str(file), "--print"])
    assert first.returncode == 0, first.stderr
    printed = tmp_path / "printed.toml"
    printed.write_text(first.stdout)
    second = run([PLIMSOLL, "check", "-c", str(printed), "--print"])
    assert second.returncode == 0, f"{second.stdout}{second.stderr}"
    assert second.stdout == first.stdout


def test_there_are_examples_and_many_kinds_of_mistake() -> None:
    assert EXAMPLES
    assert len(BAD) >= 25


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_bad_config_exits_1_and_names_the_place(file: pathlib.Path) -> None:
    done = run([PLIMSOLL, "check", "-c", str(file)])
    said = done.stdout + done.stderr
    assert done.returncode == 1, f"{done.returncode}: {said}"
    assert file.name in said, said
    assert "help: " in said, said
    assert "panicked" not in said, said


def test_all_problems_of_a_file_are_told_in_one_run(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "three.toml"
    file.write_text("""
[[listeners]]
address = "127.0.0.1:99999"

[[routes]]
cluster = "wbe"

[clusters.web]
polciy = "weighted"
backends = ["127.0.0.1:8080"]
""")
    done = run([PLIMSOLL, "check", "-c", str(file)])
    said = done.stdout + done.stderr
    assert done.returncode == 1
    # The place of each, and for the two misspelt names the mend.
    for expected in ("listeners[0].address", "99999", "routes[0].cluster", "wbe", "clusters.web", "polciy", "policy", "web"):
        assert expected in said, f"{expected!r} is missing in:\n{said}"


def test_missing_file_is_named() -> None:
    done = run([PLIMSOLL, "check", "-c", "/nonexistent/plimsoll.toml"])
    assert done.returncode in (1, 2)
    assert "/nonexistent/plimsoll.toml" in done.stdout + done.stderr


MINIMAL = """
[[listeners]]
address = "127.0.0.1:8080"
[[routes]]
cluster = "web"
[clusters.web]
backends = ["127.0.0.1:8081"]
"""


def test_config_is_read_from_stdin() -> None:
    for arguments in (["-c", "-"], ["-"]):
        done = run([PLIMSOLL, "check", *arguments], stdin=MINIMAL)
        assert done.returncode == 0 and done.stdout.startswith("stdin: ok"), f"{done.stdout}{done.stderr}"
    done = run([PLIMSOLL, "check", "-c", "-"], stdin=MINIMAL.replace("address", "adress"))
    assert done.returncode == 1 and "stdin:3:1: listeners[0].adress" in done.stderr, done.stderr


def test_config_on_stdin_is_compared_with_a_file(tmp_path: pathlib.Path) -> None:
    old = tmp_path / "old.toml"
    old.write_text(MINIMAL)
    done = run([PLIMSOLL, "check", "-c", "-", "--diff", str(old)], stdin=MINIMAL)
    assert done.returncode == 0 and "nothing changes" in done.stdout, f"{done.stdout}{done.stderr}"
    done = run([PLIMSOLL, "check", "-c", "-", "--diff", "-"], stdin=MINIMAL)
    assert done.returncode == 2 and "one of the two" in done.stderr, done.stderr


def test_proxy_refuses_a_config_on_stdin() -> None:
    done = run([PLIMSOLL, "proxy", "-c", "-"], stdin=MINIMAL)
    assert done.returncode == 2 and "help: write the config to a file" in done.stderr, done.stderr


def test_missing_pid_file_is_a_warning_of_a_good_config(tmp_path: pathlib.Path) -> None:
    file, pid = tmp_path / "web.toml", tmp_path / "app.pid"
    file.write_text(f'{MINIMAL}[clusters.web.inbound]\npid_file = "{pid}"\n')
    done = run([PLIMSOLL, "check", "-c", str(file)])
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert f"warning: {file}:9:12: clusters.web.inbound.pid_file: {pid} cannot be read" in done.stderr, done.stderr
    assert "help: start the process first" in done.stderr, done.stderr
    pid.write_text("1")
    assert "warning" not in run([PLIMSOLL, "check", "-c", str(file)]).stderr


def test_policy_of_another_proxy_is_answered_on_the_command_line() -> None:
    addresses = ["--from", "127.0.0.1:0", "--to", "127.0.0.1:9"]
    for policy, said in (("leastconn", 'help: write "least-loaded"'), ("ip_hash", "help: write \"hash\"")):
        done = run([PLIMSOLL, "proxy", *addresses, "--policy", policy])
        assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "9101"], 'command line: --to[0]: "9101" has no host\n    help: write "127.0.0.1:9101"'),
        (["--to", "10.0.0.0/24"], '--to[0]: "10.0.0.0/24" is a network, not an address\n    help: list each backend'),
        (["--to", "https://web"], 'help: write "web:443" in a config (-c FILE) with [clusters.NAME.tls]'),
        (["--to", "grpc://web:50051"], 'help: write "web:50051", with --protocol http2'),
        (["--from", "*:8080", "--to", "127.0.0.1:9"], '--from[1]: "*:8080" is not an address'),
    ],
)
def test_wrong_address_on_the_command_line_is_answered(arguments: list[str], said: str) -> None:
    done = run([PLIMSOLL, "proxy", "--from", "127.0.0.1:0", *arguments])
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_start_error_names_the_place_and_the_fix(tmp_path: pathlib.Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = f'[admin]\nlisten = "off"\n{MINIMAL}'.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        free = config.replace(f":{port}", ":0")
        for text, place, fix in (
            (config, "web.toml:5:11: listeners[0].address: cannot listen at", f"ss -ltnp 'sport = {port}'"),
            (config.replace("127.0.0.1:", "192.0.2.1:", 1), "listeners[0].address: cannot listen at", "ip address lists them"),
            (
                free.replace('0"', '0"\ntls = { certificates = [{ certificate = "no.pem", key = "no.key" }] }', 1),
                "web.toml:6:41: listeners[0].tls.certificates[0].certificate",
                "name a readable file",
            ),
        ):
            file = tmp_path / "web.toml"
            file.write_text(text)
            done = run([PLIMSOLL, "proxy", "-c", str(file)])
            assert done.returncode == 1 and place in done.stderr and "help: " in done.stderr, done.stderr
            assert fix in done.stderr, done.stderr
