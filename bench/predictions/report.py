"""A result as Markdown, and the tables of the page in docs/."""

import pathlib

from .compare import T, Row

BEGIN = "<!-- predictions -->"
END = "<!-- end -->"
# The ratio of less than this, a few requests, is chance.
LEAST = 0.002


def _number(value: float, metric: str) -> str:
    if metric.rpartition(".")[2].startswith("p"):
        return f"{value:.1f}"
    return f"{value:.3f}"


def _ratio(row: Row) -> str:
    return "" if row.ratio is None else f"{row.ratio:.2f}"


def _verdict(row: Row) -> str:
    if row.is_close:
        return "within 10%"
    return "within the spread" if row.is_in_spread else "**outside**"


def _table(rows: list[Row]) -> list[str]:
    lines = ["| metric | predicted | measured | ratio | spread | |", "|---|--:|--:|--:|--:|---|"]
    for row in rows:
        cells = [_number(row.predicted, row.metric), _number(row.measured, row.metric), _ratio(row)]
        lines.append(f"| `{row.metric}` | {' | '.join(cells)} | ± {_number(row.spread, row.metric)} | {_verdict(row)} |")
    return lines


def _group(metric: str) -> str:
    """Metrics that share a column of the overview."""
    last = metric.rpartition(".")[2]
    if ".share." in metric:
        return "shares"
    return {"shed_share": "shed", "error_share": "errors", "attempts_per_request": "attempts"}.get(last, last)


COLUMNS = ("shares", "p50", "p90", "p99", "errors", "shed", "attempts")


def _worst(rows: list[Row]) -> str:
    """The ratio that is furthest from 1, of a metric that is more than chance; in bold where the check fails."""
    if not rows:
        return ""
    ratios = [row for row in rows if row.predicted >= LEAST or (row.ratio is not None and not row.holds)]
    if not ratios:
        return "0" if all(row.holds for row in rows) else "**> 0**"
    worst = max(ratios, key=lambda row: (not row.holds, not row.is_in_spread, abs(row.ratio - 1)))
    text = f"{worst.ratio:.2f}"
    if not worst.holds:
        return f"**{text}**"
    return text if worst.is_close else f"({text})"


def overview(result: dict, rows: list[Row]) -> list[str]:
    """One line for each set-up: measured over predicted, the worst metric of each kind."""
    lines = [f"| set-up | {' | '.join(COLUMNS)} |", "|---|" + "--:|" * len(COLUMNS)]
    for name in result["setups"]:
        own = [row for row in rows if row.setup == name]
        cells = [_worst([row for row in own if _group(row.metric) == column]) for column in COLUMNS]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def summary(rows: list[Row]) -> str:
    close, spread = sum(row.is_close for row in rows), sum(row.is_in_spread and not row.is_close for row in rows)
    outside = len(rows) - close - spread
    return f"{len(rows)} metrics: {close} within 10%, {spread} more within the spread, {outside} outside."


def markdown(result: dict, rows: list[Row]) -> str:
    on = result["machine"]
    lines = [f"# Predictions beside real runs, {result['date']}", ""]
    lines += [summary(rows), "", f"Spread: ± {T} standard deviations of 20 seeds, times sqrt(1 + 1/20).", ""]
    if result["provisional"]:
        lines += ["**Provisional**: measured on a busy machine.", ""]
    lines += [*overview(result, rows), ""]
    for name, of in result["setups"].items():
        lines += [f"## {name}", "", f"{of['says']}. {of['cores']:.3f} cores for backends and proxy, load late by {of['lag_ms']:.1f} ms (p99).", ""]
        lines += [*_table([row for row in rows if row.setup == name]), ""]
    lines += [
        f"- command: `{result['command']}`",
        f"- commit: {result['commit']}",
        f"- machine: {on['cpu']}, {on['cores']} cores, Linux {on['kernel']}, load average before {on['load_before']}",
        f"- a request without work takes {result['overhead_ms']:.2f} ms (median)",
        "",
    ]
    return "\n".join(lines)


def write_page(page: pathlib.Path, result: dict, rows: list[Row]) -> None:
    """Replaces what stands between the marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    source = f"Measured [{result['date']}](../bench/results/{result['date']}-predict.md)."
    provisional = ["The figures are provisional: the machine was busy."] if result["provisional"] else []
    text = [BEGIN, source, summary(rows), *provisional, "", *overview(result, rows), END]
    page.write_text(before + "\n".join(text) + after)


