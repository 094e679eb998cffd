"""The catalogue of deliberate mistakes: each fits the code. Making them is nightly work."""

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "mutants"

TEXT = "fn share() -> f64 {\n    1.0 + load\n}\n\n#[cfg(test)]\nmod tests {\n    // 1.0 + load\n}\n"


@pytest.fixture(scope="module")
def mutants():
    loader = SourceFileLoader("mutants", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
    sys.modules["mutants"] = module
    loader.exec_module(module)
    return module


def mistake(module, **changed):
    entry = {"name": "m", "what": "", "file": "a.rs", "find": "1.0 + load", "replace": "1.0"}
    return module.Mistake(**{**entry, **changed})


def test_every_mistake_fits_the_code():
    outcome = subprocess.run([str(SCRIPT), "--check"], capture_output=True, text=True, timeout=30)
    assert outcome.returncode == 0, outcome.stderr


def test_mistake_is_chosen_by_number_and_tests_are_left_alone(mutants):
    text = mutants.with_mistakes(TEXT, [(7, mistake(mutants))])
    assert "{ if crate::mistake(7) { 1.0 } else { 1.0 + load } }" in text
    assert text.endswith(TEXT[TEXT.index("#[cfg(test)]") :])


def test_entry_that_does_not_fit_is_an_error(mutants):
    with pytest.raises(mutants.Unfit, match="has no '2.0'"):
        mutants.place(mistake(mutants, find="2.0"), TEXT)
    with pytest.raises(mutants.Unfit, match="twice"):
        mutants.place(mistake(mutants), TEXT.replace("fn", "// 1.0 + load\nfn"))
    after = mistake(mutants, after="fn share")
    assert mutants.place(after, TEXT.replace("fn", "// 1.0 + load\nfn")) == TEXT.index("1.0") + len("// 1.0 + load\n")
