"""The check of the project's language, on texts made for it."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "language"

PLAIN = "The proxy sheds the least important requests first. " * 60
DIALECT = {
    "what": "It reports what was measured, and whatever else it saw.",
    "who": "Whoever is told may ask whose it is.",
    "so many": "So many requests take so long.",
    "of which": "Ten backends, of which two fail, to which nothing goes.",
    "dialect": "A request is turned away and tried again.",
}


def check(path: Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(SCRIPT), str(path)], capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("form", DIALECT)
def test_page_fails_when_it_holds_one_form_twice(tmp_path, form):
    page = tmp_path / "page.md"
    page.write_text(f"{PLAIN}\n{DIALECT[form]}\n")
    outcome = check(page)
    assert outcome.returncode == 1
    assert f"docs: {form} above the level" in outcome.stderr
    assert DIALECT[form] in outcome.stderr, "the sentence is shown"


def test_page_passes_when_it_is_plain(tmp_path):
    page = tmp_path / "page.md"
    quoted = "`what is waited for in vain`\n\n> What is turned away, who knows?\n\n```sh\nwhat who\n```\n\nWhat is a gate?\n"
    page.write_text(PLAIN + "\n" + quoted)
    assert check(page).returncode == 0


def test_strings_and_help_are_counted_and_comments_are_not(tmp_path):
    file = tmp_path / "shown.rs"
    file.write_text('// Whoever reads what is written here.\nconst A: &str = "requests are shed";\n')
    assert check(file).returncode == 0
    file.write_text('fn f() -> String {\n    format!("{x} what is turned away, \\\n        whoever asked what")\n}\n')
    assert "shown.rs (strings): what" in check(file).stderr
    file.write_text("use clap::Parser;\n/// What is turned away, and whoever asked what.\nstruct A;\n")
    assert "shown.rs (strings): what" in check(file).stderr
