"""`scripts/audit`: an advisory is a failure, and what cannot be checked is said."""

import os
import pathlib
import shutil
import subprocess

import pytest

from root import ROOT

# All versions of a crate that the lock file has.
ADVISORY = """```toml
[advisory]
id = "RUSTSEC-2026-0999"
package = "{package}"
date = "2026-01-01"

[versions]
patched = [">= 99.0.0"]
```

# An advisory of a test

It is about all versions.
"""


def audit(script: pathlib.Path = ROOT / "scripts/audit", path: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("PLIMSOLL_")}
    known["PATH"] = path or f"{pathlib.Path(shutil.which('python3') or '').parent}:{known['PATH']}"
    return subprocess.run([script], capture_output=True, text=True, check=False, env={**known, **environment})


def database(folder: pathlib.Path, package: str) -> str:
    file = folder / "crates" / package / "RUSTSEC-2026-0999.md"
    file.parent.mkdir(parents=True)
    file.write_text(ADVISORY.format(package=package))
    return str(folder)


def needs_cargo_audit() -> None:
    if not (ROOT / ".venv/bin/cargo-audit").exists() and shutil.which("cargo-audit") is None:
        pytest.skip("NOT TESTED: cargo-audit is missing; scripts/test installs it")


def test_an_advisory_for_a_dependency_is_a_failure(tmp_path: pathlib.Path) -> None:
    needs_cargo_audit()
    done = audit(PLIMSOLL_ADVISORY_DB=database(tmp_path, "tokio"))
    assert done.returncode == 1 and "RUSTSEC-2026-0999" in done.stdout, done.stdout + done.stderr


def test_an_advisory_for_another_crate_is_none(tmp_path: pathlib.Path) -> None:
    needs_cargo_audit()
    done = audit(PLIMSOLL_ADVISORY_DB=database(tmp_path, "not-a-dependency"))
    assert done.returncode == 0 and "cargo audit: no advisory" in done.stdout, done.stdout + done.stderr


def test_a_missing_tool_is_said_and_fails_where_the_audit_is_required(tmp_path: pathlib.Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in ("bash", "dirname", "mktemp", "rm", "env"):
        (programs / program).symlink_to(shutil.which(program) or "")
    # In a folder without an environment that has the tools.
    script = tmp_path / "scripts" / "audit"
    script.parent.mkdir()
    shutil.copy2(ROOT / "scripts/audit", script)
    done = audit(script, path=str(programs))
    assert done.returncode == 0 and done.stdout.count("NOT CHECKED: ") == 2, done.stdout + done.stderr
    assert audit(script, path=str(programs), PLIMSOLL_REQUIRE_AUDIT="1").returncode == 1
