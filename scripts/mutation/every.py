"""Every mutant that cargo-mutants lists, each against the tests that reach it.

One build holds all mutants that can be chosen at run time. The others (in a constant, a `let` chain or a function that
returns `impl Trait`) go to cargo-mutants itself, which builds the crate for each.
"""

import collections
import concurrent.futures
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from . import sources
from .embed import Mutant, blamed, embed

# Pinned so that two machines make the same mutants.
CARGO_MUTANTS = "27.1.0"
# Bytes of address space of a test: a mutant of a loop may allocate without end.
MEMORY = 4 << 30
# A mutant of a loop may never end: it has this many times what its tests take without a mistake.
PATIENCE, LEAST_SECONDS = 10, 5
FIRST_BATCH, GROWTH = 8, 4
FATES = {"CaughtMutant": "killed", "MissedMutant": "survived", "Timeout": "timeout", "Unviable": "unviable"}
NOTICED, MISSED = ("killed", "timeout"), ("survived", "unreached")


def install():
    have = subprocess.run(["cargo", "mutants", "--version"], capture_output=True, text=True)
    if CARGO_MUTANTS not in have.stdout:
        subprocess.run(["cargo", "install", "--locked", "cargo-mutants", "--version", CARGO_MUTANTS], check=True)


def mutants_of(root, patterns):
    command = ["cargo", "mutants", "-p", "plimsoll-core", "--list", "--json"]
    for pattern in patterns:
        command += ["--file", pattern]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return [Mutant.of(number, mutant) for number, mutant in enumerate(json.loads(done.stdout))]


def say(text):
    print(text, file=sys.stderr, flush=True)


class Copy:
    """The sources with the mutants in them."""

    def __init__(self, root, base):
        self.root, self.tree, self.target = root, base / "tree", base / "target"
        self.texts = {}

    def write(self, mutants):
        """Returns the mutants that have no place in it."""
        apart, self.texts = [], {}
        for file in {mutant.file for mutant in mutants}:
            here = [mutant for mutant in mutants if mutant.file == file]
            self.texts[file], without = embed((self.root / file).read_text(), here)
            apart += without
        sources.copy(self.root, self.tree, self.texts, 1 + max((mutant.number for mutant in mutants), default=0))
        return apart

    def cargo(self, *arguments):
        command = ["cargo", *arguments, "-p", "plimsoll-core", "--locked", "--message-format=json"]
        environment = sources.environment(self.target, sources.TESTS)
        done = subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True)
        return done.returncode == 0, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def viable(self, mutants):
        """Those that compile, those that do not, and those that have no place."""
        unviable = []
        while True:
            apart = self.write(mutants)
            passed, messages = self.cargo("check", "--lib")
            if passed:
                numbers = {mutant.number for mutant in apart}
                return [mutant for mutant in mutants if mutant.number not in numbers], unviable, apart
            errors = [body for message in messages if (body := message.get("message")) and body["level"] == "error"]
            guilty = set().union(*(self.guilty(error) for error in errors))
            if not guilty:
                sys.exit("".join(error["rendered"] for error in errors) + "scripts/mutants: the copy does not compile")
            unviable += [mutant for mutant in mutants if mutant.number in guilty]
            mutants = [mutant for mutant in mutants if mutant.number not in guilty]

    def guilty(self, error):
        """The mutants that an error of the compiler points at."""
        spans = sorted(error["spans"], key=lambda span: not span["is_primary"])
        spans += [span for child in error["children"] for span in child["spans"]]
        for span in spans:
            text = self.texts.get(span["file_name"])
            if text and (found := blamed(text, span["byte_start"], span["byte_end"])):
                return found
        return set()

    def test_programs(self):
        passed, messages = self.cargo("test", "--no-run", "--lib", "--tests")
        if not passed:
            sys.exit("scripts/mutants: the tests do not compile")
        return [message["executable"] for message in messages if message.get("executable")]


class Tests:
    """Every test with its time, and the tests that reach each mutant."""

    def __init__(self, programs, folder, reached, pool):
        self.folder, self.seconds, self.reaching = folder, {}, collections.defaultdict(list)
        shutil.rmtree(reached, ignore_errors=True)
        reached.mkdir(parents=True)
        tests = [(program, name) for program in programs for name in names_in(program)]
        files = [reached / str(number) for number in range(len(tests))]
        for test, seconds, numbers in pool.map(self.alone, tests, files):
            self.seconds[test] = seconds
            for number in numbers:
                self.reaching[number].append(test)
        for tests in self.reaching.values():
            tests.sort(key=self.seconds.get)

    def alone(self, test, file):
        program, name = test
        begun = time.monotonic()
        passed, out = self.run([program, "--exact", name], None, {sources.REACHED: str(file)})
        if not passed:
            sys.exit(f"{out}\nscripts/mutants: {name} fails without a mistake")
        numbers = [int(line) for line in file.read_text().split()] if file.exists() else []
        return test, time.monotonic() - begun, numbers

    def run(self, command, seconds, more):
        """Whether it passed, or nothing if its time was up; and what it printed."""
        environment = {**os.environ, "CARGO_MANIFEST_DIR": str(self.folder), "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true", **more}
        child = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        )
        try:
            out, _ = child.communicate(timeout=seconds)
            return child.returncode == 0, out
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.communicate()
            return None, ""

    def fate(self, mutant):
        """How the mutant ends, and the test that ends it. Quick tests first, and no further after a failure."""
        tests = self.reaching[mutant.number]
        begin, size = 0, FIRST_BATCH
        while begin < len(tests):
            batch = tests[begin : begin + size]
            for program in sorted({program for program, _ in batch}):
                names = [name for of, name in batch if of == program]
                limit = LEAST_SECONDS + PATIENCE * sum(self.seconds[program, name] for name in names)
                command = [program, "--exact", "--test-threads=1", *names]
                passed, out = self.run(command, limit, {sources.CHOICE: str(mutant.number)})
                if passed is None:
                    return "timeout", ""
                if not passed:
                    failed = (line.split()[1] for line in out.splitlines() if line.startswith("test ") and line.endswith("FAILED"))
                    return "killed", next(failed, "abort")
            begin, size = begin + size, size * GROWTH
        return "survived" if tests else "unreached", ""


def names_in(program):
    out = subprocess.run([program, "--list", "--format", "terse"], capture_output=True, text=True, check=True).stdout
    return [line.removesuffix(": test") for line in out.splitlines() if line.endswith(": test")]


def one_by_one(root, base, mutants):
    """The fates of mutants that need a build each, by cargo-mutants."""
    if not mutants:
        return {}
    say(f"cargo-mutants builds {len(mutants)} of them one by one")
    command = ["cargo", "mutants", "-p", "plimsoll-core", "--output", str(base), "--colors", "never"]
    for mutant in mutants:
        command += ["--re", f"^{re.escape(mutant.name)}$"]
    subprocess.run(command, cwd=root, stdout=sys.stderr)
    outcomes = json.loads((base / "mutants.out" / "outcomes.json").read_text())["outcomes"]
    ended = [outcome for outcome in outcomes if outcome["scenario"] != "Baseline"]
    return {outcome["scenario"]["Mutant"]["name"]: FATES[outcome["summary"]] for outcome in ended}


def run(root, base, patterns, output, again):
    """Writes a line of JSON for each mutant; `again` names those to run, all if it is nothing."""
    install()
    mutants = [mutant for mutant in mutants_of(root, patterns) if again is None or mutant.name in again]
    copy = Copy(root, base)
    placed, unviable, apart = copy.viable(mutants)
    say(f"{len(mutants)} mutants, {len(unviable)} do not compile")
    with open(output, "w") as file, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def write(mutant, fate, test=""):
            file.write(json.dumps({"name": mutant.name, "fate": fate, "test": test}) + "\n")
            file.flush()

        for mutant in unviable:
            write(mutant, "unviable")
        tests = Tests(copy.test_programs(), copy.tree / sources.CORE, base / "reached", pool)
        say(f"{len(tests.seconds)} tests take {sum(tests.seconds.values()):.0f} s")
        for mutant, (fate, test) in zip(placed, pool.map(tests.fate, placed)):
            write(mutant, fate, test)
        fates = one_by_one(root, base, apart)
        for mutant in apart:
            write(mutant, fates.get(mutant.name, "not run"))


def read(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def summary(results):
    """A table by file, and the mutants that were missed."""
    counts, missed = collections.defaultdict(collections.Counter), []
    for found in results:
        name = found["name"].split("/src/")[1]
        counts[name.split(":")[0]][found["fate"]] += 1
        if found["fate"] in MISSED:
            missed.append(f"{name} ({found['fate']})")
    counts["all"] = sum(counts.values(), collections.Counter())
    lines = ["| file | viable | killed | share |", "|---|--:|--:|--:|"]
    for file, fates in counts.items():
        killed = sum(fates[fate] for fate in NOTICED)
        viable = killed + sum(fates[fate] for fate in MISSED)
        if viable:
            lines.append(f"| `{file}` | {viable} | {killed} | {killed / viable:.0%} |")
    return "\n".join([*lines, "", *missed])
