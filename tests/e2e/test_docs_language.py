"""No page uses a synonym that the glossary replaces."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
# Pages that still await their rewriting; each leaves this list with it.
OLD = {"metrics"}
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if page != GLOSSARY and page.stem not in OLD
]  # fmt: skip


def synonyms(glossary: str) -> dict[str, str]:
    """The phrases of the last column, each with its term."""
    rows = [row.strip("|").split("|") for row in glossary.splitlines() if row.startswith("| ") and not row.startswith("| term")]
    return {
        phrase.strip(" `"): term.strip()
        for term, _, phrases in rows
        for phrase in phrases.split(",")
        if phrase.strip()
    }  # fmt: skip


def found(text: str, phrases: dict[str, str]) -> list[str]:
    """Uses of the phrases in prose: not in code, links or quoted lines. A phrase may span two lines."""
    prose = re.sub(r"^\s*```.*?^\s*```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^>.*$", "", prose, flags=re.MULTILINE)
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)|https?://\S+", lambda code: re.sub(r"[^\n]", " ", code[0]), prose)
    uses = []
    for phrase, term in phrases.items():
        words = r"\s+".join(map(re.escape, phrase.split()))
        for use in re.finditer(rf"(?<![\w-]){words}(?![\w-])", prose, re.IGNORECASE):
            line = prose.count("\n", 0, use.start()) + 1
            uses.append(f"line {line}: {use[0]!r}; the term is {term!r}")
    return uses


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_uses_no_synonym_of_a_term(page: Path) -> None:
    uses = found(page.read_text(), synonyms(GLOSSARY.read_text()))
    assert not uses, "\n".join([str(page.relative_to(ROOT)), *uses])


def test_glossary_lists_synonyms_that_are_no_terms() -> None:
    phrases = synonyms(GLOSSARY.read_text())
    assert len(phrases) >= 30, "the column of synonyms was not read"
    assert not set(phrases) & set(phrases.values())


def test_synonym_is_found_in_prose_only() -> None:
    phrases = {"turned away": "rejected", "dear": "expensive"}
    assert found("A request is turned\naway.\n", phrases) == ["line 1: 'turned\\naway'; the term is 'rejected'"]
    assert found("A Dear request.", phrases)
    assert not found("`turned away`, [a](turned-away), endearing\n\n> dear\n\n```sh\ndear\n```\n", phrases)
