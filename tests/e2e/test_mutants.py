"""Deliberate mistakes: the catalogue fits the code, and mutants are put where they belong. Running them is nightly work."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from mutation import catalogue, every  # noqa: E402
from mutation.embed import Mutant, blamed, embed  # noqa: E402

SCRIPT = ROOT / "scripts" / "mutants"

TEXT = "fn share() -> f64 {\n    1.0 + load\n}\n\n#[cfg(test)]\nmod tests {\n    // 1.0 + load\n}\n"


def mistake(**changed):
    entry = {"name": "m", "what": "", "file": "a.rs", "find": "1.0 + load", "replace": "1.0"}
    return catalogue.Mistake(**{**entry, **changed})


def test_every_mistake_fits_the_code():
    outcome = subprocess.run([str(SCRIPT), "--check"], capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.timeout(300)
def test_every_mistake_has_the_type_of_its_place():
    outcome = subprocess.run([str(SCRIPT), "--types"], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr


def test_entry_that_is_no_expression_is_an_error(tmp_path):
    source = tmp_path / catalogue.sources.CORE / "src"
    source.mkdir(parents=True)
    source.joinpath("a.rs").write_text(TEXT)
    catalogue.check(tmp_path, [mistake()])
    entries = [mistake(name="fits"), mistake(name="half", find="1.0 +", replace="2.0 +", after="{")]
    with pytest.raises(catalogue.Unfit, match="^half: expected expression.*help: let `find` be a whole") as fault:
        catalogue.check(tmp_path, entries[1:])
    assert "\n" not in str(fault.value)
    source.joinpath("b.rs").write_text("struct S { a: u8 }\nfn f() -> S { S { a: 1 } }\n")
    arm = mistake(name="field", file="b.rs", find="a: 1", replace="a: 2")
    with pytest.raises(catalogue.Unfit, match="^field: "):
        catalogue.check(tmp_path, [entries[0], arm])


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


def mutant(text, genre, wrong, replacement, number=1, returns="", last=False):
    """The mutant at the first place of `wrong`, or the last."""
    at = text.rindex(wrong) if last else text.index(wrong)

    def place(offset):
        return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)

    return Mutant(number, f"mutant {number}", genre, "a.rs", place(at), place(at + len(wrong)), replacement, returns)


def embedded(text, *mutants):
    out, apart = embed(text, list(mutants))
    assert not apart
    return out


def test_operator_within_operator_keeps_the_other_right():
    text = "fn f() -> u64 {\n    a + b * c\n}\n"
    out = embedded(text, mutant(text, "BinaryOperator", "+", "-", 1), mutant(text, "BinaryOperator", "*", "/", 2))
    inner = "(if crate::mistake(2) { /*<2*/ (b) / (c) /*2>*/ } else { b * c })"
    assert f"(if crate::mistake(1) {{ /*<1*/ (a) - (b * c) /*1>*/ }} else {{ a + {inner} }})" in out


def test_function_begins_with_its_mutants():
    text = "fn f() -> Option<u64> {\n    Some(1)\n}\n"
    out = embedded(text, mutant(text, "FnValue", "Some(1)", "None"))
    assert out.startswith("fn f() -> Option<u64> { if crate::mistake(1) { /*<1*/ return None; /*1>*/ }\n")


def test_match_arm_and_guard_are_mutants_of_their_own():
    text = "fn f() {\n    match a {\n        B if cond => d(),\n        E => g(),\n        _ => {}\n    }\n}\n"
    out = embedded(
        text,
        mutant(text, "MatchArmGuard", "cond", "true", 1),
        mutant(text, "MatchArm", "B if cond => d(),", "", 2),
        mutant(text, "MatchArm", "E => g(),", "", 3),
    )
    assert "B if (!crate::mistake(2) && ((crate::mistake(1) || (cond)))) => d()," in out
    assert "E if !crate::mistake(3)  => g()," in out


@pytest.mark.parametrize(
    ("text", "genre", "wrong", "returns"),
    [
        ("fn f() {\n    const A: u64 = 2 * 3;\n}\n", "BinaryOperator", "*", ""),
        ("fn f() {\n    if a && let Some(b) = c {}\n}\n", "BinaryOperator", "&&", ""),
        ("fn f() -> impl Iterator<Item = u64> {\n    all()\n}\n", "FnValue", "all()", "-> impl Iterator<Item = u64>"),
    ],
)
def test_mutant_that_no_run_can_choose_is_left_to_a_build_of_its_own(text, genre, wrong, returns):
    only = mutant(text, genre, wrong, "x", returns=returns)
    out, apart = embed(text, [only])
    assert (out, apart) == (text, [only])


def test_error_of_the_compiler_leads_to_the_innermost_mutant():
    text = "a /*<1*/ b /*<2*/ c /*2>*/ /*1>*/ d"
    at = text.index("c")
    assert blamed(text, at, at + 1) == {2}
    assert blamed(text, text.index("b"), text.index("b") + 1) == {1}
    assert blamed(text, 0, len(text)) == {1, 2}
    assert blamed(text, 0, 1) == set()


def test_share_counts_what_compiles_and_names_what_was_missed():
    fates = {"a": "killed", "b": "timeout", "c": "survived", "d": "unreached", "e": "unviable"}
    results = [{"name": f"core/src/x.rs:1:1: {name}", "fate": fate} for name, fate in fates.items()]
    table = every.summary(results)
    assert "| `all` | 4 | 2 | 50% |" in table
    assert table.endswith("x.rs:1:1: c (survived)\nx.rs:1:1: d (unreached)")
