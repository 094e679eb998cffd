"""The catalogue of deliberate mistakes: each fits the code. Making them is nightly work."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from mutation import catalogue  # noqa: E402

SCRIPT = ROOT / "scripts" / "mutants"

TEXT = "fn share() -> f64 {\n    1.0 + load\n}\n\n#[cfg(test)]\nmod tests {\n    // 1.0 + load\n}\n"


def mistake(**changed):
    entry = {"name": "m", "what": "", "file": "a.rs", "find": "1.0 + load", "replace": "1.0"}
    return catalogue.Mistake(**{**entry, **changed})


def test_every_mistake_fits_the_code():
    outcome = subprocess.run([str(SCRIPT), "--check"], capture_output=True, text=True, timeout=30)
    assert outcome.returncode == 0, outcome.stderr


def test_mistake_is_chosen_by_number_and_tests_are_left_alone():
    text = catalogue.with_mistakes(TEXT, [(7, mistake())])
    assert "{ if crate::mistake(7) { 1.0 } else { 1.0 + load } }" in text
    assert text.endswith(TEXT[TEXT.index("#[cfg(test)]") :])


def test_entry_that_does_not_fit_is_an_error():
    with pytest.raises(catalogue.Unfit, match="has no '2.0'"):
        catalogue.place(mistake(find="2.0"), TEXT)
    with pytest.raises(catalogue.Unfit, match="twice"):
        catalogue.place(mistake(), TEXT.replace("fn", "// 1.0 + load\nfn"))
    after = mistake(after="fn share")
    assert catalogue.place(after, TEXT.replace("fn", "// 1.0 + load\nfn")) == TEXT.index("1.0") + len("// 1.0 + load\n")
