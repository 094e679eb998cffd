"""The mistakes of tests/mistakes.toml, and whether the core's tests and the scenarios notice them."""

import json
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from . import sources

# Full link-time optimization takes longer than all runs.
SIMULATOR = {
    **sources.BUILD,
    "CARGO_PROFILE_RELEASE_DEBUG": "0",
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
}


@dataclass
class Mistake:
    name: str
    what: str
    file: str
    find: str
    replace: str
    scenarios: list = field(default_factory=list)
    after: str = ""


class Unfit(Exception):
    """An entry of the catalogue does not fit the code."""


def read(file):
    mistakes = [Mistake(**entry) for entry in tomllib.loads(file.read_text())["mistakes"]]
    names = [mistake.name for mistake in mistakes]
    if len(set(names)) < len(names):
        raise Unfit(f"{file.name}: two mistakes have one name")
    return mistakes


def code_of(text):
    """The length of the part before the tests."""
    tests = text.find("\n#[cfg(test)]\nmod tests {")
    return len(text) if tests < 0 else tests


def place(mistake, text):
    """Where the right code is."""
    begin = text.find(mistake.after)
    if begin < 0:
        raise Unfit(f"{mistake.name}: {mistake.file} has no {mistake.after!r}; help: adapt `after` to the code")
    begin += len(mistake.after)
    end = code_of(text)
    at = text.find(mistake.find, begin, end)
    if at < 0:
        raise Unfit(f"{mistake.name}: {mistake.file} has no {mistake.find!r}; help: adapt the entry to the code")
    if not mistake.after and text.find(mistake.find, at + 1, end) >= 0:
        raise Unfit(f"{mistake.name}: {mistake.file} has {mistake.find!r} twice; help: add `after`")
    return at


def with_mistakes(text, mistakes):
    """The text with all mistakes in it; `mistakes` are pairs of number and mistake."""
    spots = sorted(((place(mistake, text), number, mistake) for number, mistake in mistakes), reverse=True)
    for at, number, mistake in spots:
        end = at + len(mistake.find)
        both = f"{{ if crate::mistake({number}) {{ {mistake.replace} }} else {{ {mistake.find} }} }}"
        text = text[:at] + both + text[end:]
    return text


def texts_of(root, mistakes):
    """The files with all mistakes in them, by their paths under the core's `src`."""
    texts = {}
    for file in sorted({mistake.file for mistake in mistakes}):
        here = [(number, mistake) for number, mistake in enumerate(mistakes) if mistake.file == file]
        texts[file] = with_mistakes((root / sources.CORE / "src" / file).read_text(), here)
    return texts


def syntax_error(text):
    """The first error of a parser, and the line; none if the text is Rust."""
    done = subprocess.run(["rustfmt", "--edition", "2024", "--emit", "stdout"], input=text, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    error = re.search(r"error(?:\[\w+\])?: (.*)\n *--> <stdin>:(\d+)", done.stderr)
    return (error[1], int(error[2])) if error else (done.stderr.strip(), 0)


def syntax_faults(root, mistakes):
    """The entries that make no valid expression of their place."""

    def fault(mistake):
        error = syntax_error(with_mistakes((root / sources.CORE / "src" / mistake.file).read_text(), [(0, mistake)]))
        return error and f"{mistake.name}: {error[0]}; help: let `find` be a whole expression, or whole statements"

    with ThreadPoolExecutor() as pool:
        texts = texts_of(root, mistakes)
        broken = {file for file, error in zip(texts, pool.map(syntax_error, texts.values())) if error}
        return [found for found in pool.map(fault, (mistake for mistake in mistakes if mistake.file in broken)) if found]


def check(root, mistakes):
    faults = []
    for mistake in mistakes:
        try:
            place(mistake, (root / sources.CORE / "src" / mistake.file).read_text())
        except (Unfit, OSError) as fault:
            faults.append(str(fault))
        for scenario in mistake.scenarios:
            if not (root / "scenarios" / f"{scenario}.toml").exists():
                faults.append(f"{mistake.name}: there is no scenario {scenario}")
    if faults := faults or syntax_faults(root, mistakes):
        raise Unfit("\n".join(faults))


class Runs:
    """The built copy, and the runs of its tests."""

    def __init__(self, root, base, mistakes):
        self.tree, self.target = base / "tree", base / "target"
        texts = {str(sources.CORE / "src" / file): text for file, text in texts_of(root, mistakes).items()}
        sources.copy(root, self.tree, texts, len(mistakes))

    def check_types(self):
        """Fails unless all mistakes have the types of their places."""
        command = ["cargo", "check", "--quiet", "--locked", "-p", "plimsoll-core", "--lib"]
        environment = sources.environment(self.target, sources.TESTS)
        done = subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unfit(f"a mistake has another type than its place:\n{done.stderr.strip()}")

    def core(self, number=None):
        """The first test that fails; none if all pass."""
        command = ["cargo", "nextest", "run", "-p", "plimsoll-core", "--locked", "--status-level", "fail", "--color", "never"]
        environment = sources.environment(self.target, sources.TESTS, number)
        done = subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return None
        for line in done.stderr.splitlines():
            words = line.split()
            if words and words[0] in ("FAIL", "TIMEOUT", "SIGABRT", "ABORT"):
                return words[-1]
        sys.stderr.write(done.stderr)
        raise SystemExit(2)

    def build_simulator(self):
        command = ["cargo", "build", "--quiet", "--release", "--locked", "-p", "plimsoll-sim", "--example", "checks"]
        subprocess.run(command, cwd=self.tree, env=sources.environment(self.target, SIMULATOR), check=True)

    def scenario(self, name, number=None):
        """The first check that fails; none if all hold."""
        file = self.tree / "scenarios" / f"{name}.toml"
        program = self.target / "release" / "examples" / "checks"
        done = subprocess.run([program, file], env=sources.environment(self.target, {}, number), capture_output=True, text=True)
        if done.returncode != 0:
            return f"{name}: no result"
        failed = (found for found in json.loads(done.stdout)["checks"] if not found["ok"])
        return next((f"{name}: {found['name']} = {found['got']:.4g}" for found in failed), None)


def run(root, base, mistakes, chosen, with_core, with_scenarios):
    """Prints a table, and returns the number of mistakes that were missed."""
    runs = Runs(root, base, mistakes)
    numbers = [number for number, mistake in enumerate(mistakes) if mistake.name in chosen]
    if with_core and (failed := runs.core()):
        sys.exit(f"scripts/mutants: {failed} fails without a mistake")
    if with_scenarios:
        runs.build_simulator()
        for scenario in sorted({scenario for number in numbers for scenario in mistakes[number].scenarios}):
            if failed := runs.scenario(scenario):
                sys.exit(f"scripts/mutants: {failed} fails without a mistake")
    missed = 0
    print("| mistake | core test | scenario |\n|---|---|---|", flush=True)
    for number in numbers:
        mistake = mistakes[number]
        cells = ["", ""]
        if with_core:
            test = runs.core(number)
            missed += test is None
            cells[0] = f"`{test}`" if test else "**missed**"
        if with_scenarios and mistake.scenarios:
            found = [runs.scenario(scenario, number) for scenario in mistake.scenarios]
            missed += None in found
            cells[1] = "; ".join(check or f"**{name}: missed**" for name, check in zip(mistake.scenarios, found))
        print(f"| {mistake.name} | {cells[0]} | {cells[1]} |", flush=True)
    print(f"{len(numbers)} mistakes, {missed} missed")
    return missed
