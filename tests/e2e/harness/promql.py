"""Metrics and labels in PromQL: the part of the language that the rules and the dashboard use."""

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""\s+ | \#[^\n]*
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<range>\[[^\]]*\])
      | (?P<name>[A-Za-z_:][\w:]*)
      | (?P<number>[\d.]+\w*)
      | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},@])""",
    re.VERBOSE,
)
AGGREGATIONS = {"sum", "min", "max", "avg", "count", "group", "stddev", "stdvar", "topk", "bottomk", "quantile", "count_values"}


@dataclass
class Selector:
    """A metric with its matchers, as (label, operator, value)."""

    metric: str
    matchers: list[tuple[str, str, str]] = field(default_factory=list)
    is_range: bool = False

    def __str__(self) -> str:
        return f"{self.metric}{{{','.join(f'{label}{sign}{value}' for label, sign, value in self.matchers)}}}"


@dataclass
class Grouping:
    """`by` or `without`, its labels, and the selectors that it aggregates."""

    word: str
    labels: list[str]
    selectors: list[Selector]


@dataclass
class Query:
    """The selectors and groupings of an expression."""

    selectors: list[Selector] = field(default_factory=list)
    groupings: list[Grouping] = field(default_factory=list)

    def grouped(self, word: str) -> set[str]:
        return {label for grouping in self.groupings if grouping.word == word for label in grouping.labels}


def tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        token = TOKEN.match(text, at)
        assert token is not None, f"no PromQL at {text[at:at + 20]!r} of {text!r}"
        if token.lastgroup:
            found.append((token.lastgroup, token[0]))
        at = token.end()
    return found


def parse(text: str) -> Query:
    """Selectors and groupings of an expression. A grouping has to come before its parenthesis: `sum by (x) (…)`."""
    stream, query = tokens(text), Query()
    # One for each open parenthesis: the grouping that it is the argument of, if any.
    open_: list[Grouping | None] = []
    pending: Grouping | None = None
    at = 0
    while at < len(stream):
        kind, token = stream[at]
        after = stream[at + 1][1] if at + 1 < len(stream) else ""
        if kind == "name" and token in ("by", "without"):
            assert after == "(" and stream[at - 1][1] in AGGREGATIONS, f"`{token}` stands after the aggregation's name: {text}"
            labels, at = names(stream, at + 2, ")")
            pending = Grouping(token, labels, [])
            query.groupings.append(pending)
            continue
        assert token not in ("on", "ignoring", "group_left", "group_right"), f"`{token}` is not checked yet: {text}"
        if token == "(":
            open_.append(pending)
            pending = None
        elif token == ")":
            open_.pop()
        elif kind == "name" and after != "(" and token not in ("or", "and", "unless", "bool", *AGGREGATIONS):
            selector = Selector(token)
            if after == "{":
                selector.matchers, at = matchers(stream, at + 2)
                at -= 1
            selector.is_range = at + 1 < len(stream) and stream[at + 1][0] == "range"
            query.selectors.append(selector)
            for grouping in filter(None, open_):
                grouping.selectors.append(selector)
        at += 1
    return query


def names(stream: list[tuple[str, str]], at: int, end: str) -> tuple[list[str], int]:
    found = []
    while stream[at][1] != end:
        if stream[at][0] == "name":
            found.append(stream[at][1])
        at += 1
    return found, at + 1


def matchers(stream: list[tuple[str, str]], at: int) -> tuple[list[tuple[str, str, str]], int]:
    found = []
    while stream[at][1] != "}":
        if stream[at][1] == ",":
            at += 1
            continue
        (_, label), (_, sign), (kind, value) = stream[at : at + 3]
        assert sign in ("=", "!=", "=~", "!~") and kind == "string", f"no matcher: {label} {sign} {value}"
        found.append((label, sign, value))
        at += 3
    return found, at + 1
