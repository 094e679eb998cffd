"""Each crate as crates.io gets it, and the promises of its manifest."""

import json
import os
import pathlib
import re
import subprocess
import tarfile
import tomllib

import pytest

from root import ROOT

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "package-test"
# Files of a crate that are neither code nor its papers, each of use to whoever builds or tests it.
OTHER_FILES = re.compile(
    r"^(scenarios/[\w-]+\.toml|proptest-regressions/[\w/.-]+\.txt|src/[\w/]+/golden\.txt|src/page/[\w./-]+|tests/screens/[\w-]+\.snap)$"
)


@pytest.fixture(scope="session")
def metadata() -> dict:
    done = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked"], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def members(metadata: dict) -> list[dict]:
    inside = set(metadata["workspace_members"])
    return [package for package in metadata["packages"] if package["id"] in inside]


@pytest.fixture(scope="session")
def published(members: list[dict]) -> list[dict]:
    return [package for package in members if package["publish"] is None]


@pytest.fixture(scope="session")
def packaged() -> tuple[list[str], str]:
    """The crates in the order in which cargo packs them, and what it says meanwhile. It builds nothing."""
    command = ["cargo", "package", "--workspace", "--exclude", "plimsoll-testkit", "--locked", "--no-verify", "--allow-dirty"]
    done = subprocess.run([*command, "--target-dir", TARGET], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return re.findall(r"Packaging (\S+) v", done.stderr), done.stderr


def crate(name: str, metadata: dict) -> tarfile.TarFile:
    (version,) = (package["version"] for package in metadata["packages"] if package["name"] == name and package["source"] is None)
    return tarfile.open(TARGET / "package" / f"{name}-{version}.crate")


def names(archive: tarfile.TarFile) -> set[str]:
    return {name.split("/", 1)[1] for name in archive.getnames()}


def text(archive: tarfile.TarFile, name: str) -> str:
    (member,) = (member for member in archive if member.name.split("/", 1)[1] == name)
    file = archive.extractfile(member)
    assert file is not None
    return file.read().decode()


def test_only_the_test_kit_stays_private(members: list[dict]) -> None:
    assert [package["name"] for package in members if package["publish"] is not None] == ["plimsoll-testkit"]


def test_cargo_packs_every_crate_without_a_warning(packaged: tuple[list[str], str], published: list[dict]) -> None:
    order, said = packaged
    assert sorted(order) == sorted(package["name"] for package in published)
    # Tests that need the test kit stay out.
    warnings = [line for line in said.splitlines() if "warning" in line and not line.startswith("warning: ignoring test `")]
    assert not warnings, warnings


def test_a_crate_comes_after_those_that_it_uses(packaged: tuple[list[str], str], published: list[dict]) -> None:
    order, _ = packaged
    for package in published:
        uses = {dependency["name"] for dependency in package["dependencies"] if dependency["kind"] != "dev"} & set(order)
        late = [name for name in uses if order.index(name) > order.index(package["name"])]
        assert not late, f"{package['name']} is published before {late}"


def test_crates_hold_papers_and_no_junk(packaged: tuple[list[str], str], metadata: dict) -> None:
    for name in packaged[0]:
        with crate(name, metadata) as archive:
            found = names(archive)
            assert {"LICENSE-APACHE", "LICENSE-MIT", "README.md", "Cargo.toml"} <= found, name
            assert text(archive, "LICENSE-MIT").startswith("MIT License"), name
        known = {"LICENSE-APACHE", "LICENSE-MIT", "README.md", "Cargo.toml", "Cargo.toml.orig", "Cargo.lock", ".cargo_vcs_info.json"}
        strange = {file for file in found - known if not file.endswith(".rs") and not OTHER_FILES.match(file)}
        assert not strange, f"{name}: {strange}"


def test_crates_hold_tests_only_where_these_compile(packaged: tuple[list[str], str], published: list[dict], metadata: dict) -> None:
    for package in published:
        needs_kit = any(dependency["name"] == "plimsoll-testkit" for dependency in package["dependencies"])
        with crate(package["name"], metadata) as archive:
            tests = {name for name in names(archive) if name.startswith(("tests/", "proptest-regressions/"))}
        in_repository = (pathlib.Path(package["manifest_path"]).parent / "tests").exists()
        assert bool(tests) == (in_repository and not needs_kit), (package["name"], sorted(tests)[:3])


def test_crates_name_versions_and_no_private_crate(packaged: tuple[list[str], str], metadata: dict) -> None:
    for name in packaged[0]:
        with crate(name, metadata) as archive:
            manifest = tomllib.loads(text(archive, "Cargo.toml"))
        assert "testkit" not in json.dumps(manifest.get("dependencies", {}) | manifest.get("dev-dependencies", {})), name
        for dependency in manifest.get("dependencies", {}).values():
            assert "path" not in dependency and dependency.get("version"), (name, dependency)


def test_code_includes_only_files_of_its_crate(packaged: tuple[list[str], str], metadata: dict) -> None:
    """A file outside is not there for users of the crate. The guides are doc tests of the repository alone."""
    for name in packaged[0]:
        with crate(name, metadata) as archive:
            found = names(archive)
            for file in sorted(file for file in found if file.startswith("src/") and file.endswith(".rs") and "tests" not in file):
                for line in text(archive, file).splitlines():
                    if included := re.search(r"(?<!doc = )include_(?:str|bytes)!\((?:concat!\()?\"([^\"]+)", line):
                        path = os.path.normpath(pathlib.PurePosixPath(file).parent / included[1])
                        assert not path.startswith(".."), f"{name}/{file}: {line.strip()}"


def test_manifests_say_what_a_registry_shows(published: list[dict]) -> None:
    for package in published:
        name = package["name"]
        assert package["description"] and package["license"] == "Apache-2.0 OR MIT", name
        assert package["readme"] == "README.md" and package["documentation"], name
        assert 1 <= len(package["keywords"]) <= 5 and 1 <= len(package["categories"]) <= 5, name
        assert all(re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,19}", keyword) for keyword in package["keywords"]), name
        assert all(target.endswith("-linux-gnu") for target in package["metadata"]["docs"]["rs"]["targets"]), name


def test_no_dependency_asks_for_a_newer_compiler(metadata: dict, published: list[dict]) -> None:
    def parsed(version: str) -> tuple[int, ...]:
        return tuple(map(int, version.split("."))) + (0,) * (2 - version.count("."))

    (promised,) = {package["rust_version"] for package in published}
    newer = {package["name"] for package in metadata["packages"] if parsed(package["rust_version"] or "0") > parsed(promised)}
    assert not newer, f"rust-version is {promised}, and these ask for more: {newer}"
    compiler = subprocess.run(["rustc", "--version"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()[1]
    assert parsed(compiler.split("-")[0]) >= parsed(promised), f"rustc {compiler} is older than rust-version {promised}"


def portable() -> list[str]:
    listed = re.search(r"^crates=\((.*)\)$", (ROOT / "scripts/portable").read_text(), re.MULTILINE)
    assert listed is not None
    return listed[1].split()


def uses(name: str, published: list[dict]) -> set[str]:
    """A crate and those of ours that it is built with."""
    (package,) = (package for package in published if package["name"] == name)
    ours = {package["name"] for package in published}
    direct = {dependency["name"] for dependency in package["dependencies"] if dependency["kind"] != "dev"} & ours
    return {name}.union(*(uses(other, published) for other in direct))


def test_crates_for_linux_say_so_to_other_compilers(published: list[dict]) -> None:
    # The others use one of these.
    lowest = ("plimsoll", "plimsoll-stream", "plimsoll-system")
    for name in lowest:
        library = (ROOT / f"crates/{name}/src/lib.rs").read_text()
        error = rf'#\[cfg\(not\(target_os = "linux"\)\)\]\ncompile_error!\(\s*"{name} needs Linux; help: '
        assert re.search(error, library), name
    for_linux = {package["name"] for package in published if uses(package["name"], published).intersection(lowest)}
    assert sorted(for_linux) == sorted({package["name"] for package in published} - set(portable()))


def test_portable_crates_use_a_system_in_one_file_only(published: list[dict]) -> None:
    system = re.compile(r"\bstd::os::|\brustix::|\blibc::|\btarget_os\b")
    found = [
        f"{name}/{file.relative_to(ROOT / 'crates' / name)}"
        for name in portable()
        for file in sorted((ROOT / "crates" / name / "src").rglob("*.rs"))
        if system.search(file.read_text())
    ]
    # The CPU clock of the process, where there is one.
    assert found == ["plimsoll-tower/src/shed/process.rs"]


def test_page_of_crates_has_their_systems_versions_and_order(published: list[dict]) -> None:
    page = (ROOT / "docs/crates.md").read_text()
    rows = {name: row for row in page.splitlines() if row.startswith("| `") for name in re.findall(r"`(plimsoll[\w-]*)`", row.split("|")[1])}
    assert sorted(rows) == sorted(package["name"] for package in published)
    for name, row in rows.items():
        assert (row.split("|")[3].strip() == "Linux") == (name not in portable()), row
    (promised,) = {package["rust_version"] for package in published}
    assert f"compiles every crate, {promised} now" in page and f"Rust {promised}]" in (ROOT / "docs/install.md").read_text()
    steps = [re.findall(r"`([\w-]+)`", line) for line in re.findall(r"^\d+\. (.*)$", page, re.MULTILINE)]
    before: set[str] = set()
    for step in steps:
        for name in step:
            assert uses(name, published) - {name} <= before, f"{name} comes too early"
        before |= set(step)
    assert before == set(rows)


def test_readmes_have_an_example(published: list[dict]) -> None:
    for package in published:
        readme = (pathlib.Path(package["manifest_path"]).parent / "README.md").read_text()
        assert readme.startswith(f"# {package['name']}\n") and "```" in readme, package["name"]
        library = pathlib.Path(package["manifest_path"]).parent / "src/lib.rs"
        # Compiled as a doc test of the crate.
        assert not library.exists() or '#[doc = include_str!("../README.md")]' in library.read_text(), package["name"]
