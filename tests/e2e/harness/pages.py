"""The pages of the documentation: their command blocks, the files that they write out, their links and anchors."""

import pathlib
import re
import shlex
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Pages with commands for users.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Commands that stay in the foreground until they are told to end.
FOREGROUND = re.compile(r"(exec )?(plimsoll (proxy|quota (-c|--limit)|quota$|backend)|etcd|python3 \S+\.py)\b(?!.*--help)|sh -c '(.*exec |while true)")


@dataclass
class Block:
    """A fenced block: its language, its text without the fences, the line of its first fence, the heading above."""

    page: pathlib.Path
    line: int
    language: str
    text: str
    heading: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_command(self) -> bool:
        return self.language == "sh"

    @property
    def file(self) -> str | None:
        """The file that a block writes out: its first line is a comment with the name and nothing else."""
        named = re.match(r"(?:#|//) ([\w.-]+\.[a-z]+)\n", self.text)
        return named[1] if named and not self.is_command else None

    def commands(self) -> list[str]:
        """Its commands without comments, continued lines joined."""
        joined = self.text.replace("\\\n", " ")
        lines = [shlex.join(shlex.split(line, comments=True)) if is_plain(line) else line for line in joined.splitlines()]
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]

    @property
    def is_foreground(self) -> bool:
        return any(FOREGROUND.match(command) for command in self.commands())


def is_plain(line: str) -> bool:
    """Whether a line is one simple command, without quotes over several lines, pipes or substitutions."""
    return not re.search(r"[|&;<>$'\"`]", line)


def blocks(page: pathlib.Path) -> list[Block]:
    found = []
    begun: Block | None = None
    heading = ""
    for number, line in enumerate(page.read_text().splitlines(keepends=True), 1):
        fence = re.match(r"\s*```(\w*)", line)
        if begun is None and fence:
            begun = Block(page, number, fence[1], "", heading)
        elif begun is not None and fence:
            found.append(begun)
            begun = None
        elif begun is not None:
            begun.text += line
        elif line.startswith("#"):
            heading = line.strip("# \n")
    assert begun is None, f"{page}: the block of line {begun.line} has no end"
    return found


def prose(page: pathlib.Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^\s*```.*?^\s*```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: pathlib.Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = 1
        unique = anchor
        while unique in found:
            unique, number = f"{anchor}-{number}", number + 1
        found.add(unique)
    return found


def links(page: pathlib.Path) -> list[str]:
    """Targets of the relative links of a page."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]
