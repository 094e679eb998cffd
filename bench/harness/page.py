"""The result as one HTML page with plots, which needs nothing from elsewhere.

A bar is the median, in parts from full to pale (user and system time, say); the thin line is the range of the rounds. All bars
of a plot start at zero. Plimsoll has its own colour and all others share one, since the question is always the same.
"""

import html
import re

from . import report
from .rounds import SUBJECT

_WIDTH, _LABEL, _VALUE, _ROW, _BAR = 640, 170, 70, 30, 16
# Colours for paper and for the dark; figures in columns under each other.
_STYLE = """
:root {
  --ink: #1b2430; --soft: #66707d; --line: #d9dee4; --ground: #ffffff;
  --own: #0b6e99; --other: #8a94a0; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6eaef; --soft: #9aa4b0; --line: #343d48; --ground: #14191f;
    --own: #4fb3dd; --other: #77828f; --bad: #ff8a80;
  }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; } code { font-size: .9em; }
p, li, figcaption { color: var(--soft); max-width: 60rem; }
figure { margin: .75rem 0; } svg { width: 100%; max-width: 640px; height: auto; display: block; }
svg text { font: 13px system-ui, sans-serif; fill: var(--ink); } svg .soft { fill: var(--soft); font-size: 11px; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid var(--line); }
.number { text-align: right; }
td b { color: var(--bad); }
.table { margin: 1rem 0; }
details { margin: .5rem 0; } summary { color: var(--soft); cursor: pointer; }
"""


def _colour(label: str) -> str:
    return "var(--own)" if label.startswith(SUBJECT) else "var(--other)"


def bars(rows: list[dict], unit: str, what: str, opacities: tuple[float, ...] = (1, 0.5)) -> str:
    """`rows`: label, the parts of the bar, and the range where there is one."""
    most = max((row.get("high") or sum(row["parts"]) for row in rows), default=1) or 1
    scale = (_WIDTH - _LABEL - _VALUE) / most
    height = _ROW * len(rows) + 20
    marks = []
    for number, row in enumerate(rows):
        top = _ROW * number + 6
        middle = top + _BAR / 2
        total, left = max(sum(row["parts"]), 0), float(_LABEL)
        marks.append(f'<text x="{_LABEL - 8}" y="{middle + 4}" text-anchor="end">{html.escape(row["label"])}</text>')
        for part, opacity in zip(row["parts"], opacities, strict=False):
            wide = max(part, 0) * scale
            marks.append(
                f'<rect x="{left:.1f}" y="{top}" width="{wide:.1f}" height="{_BAR}" fill="{_colour(row["label"])}" '
                f'fill-opacity="{opacity}"/>'
            )
            left += wide
        end = left
        if row.get("high") is not None:
            low, high = _LABEL + row["low"] * scale, _LABEL + row["high"] * scale
            marks.append(f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="var(--ink)" stroke-width="1.5"/>')
            end = max(left, high)
        marks.append(f'<text x="{end + 6:.1f}" y="{middle + 4}">{total:.4g}</text>')
    marks.append(f'<path d="M{_LABEL} 0V{height - 18}" stroke="var(--line)"/>')
    marks.append(f'<text class="soft" x="{_LABEL}" y="{height - 4}">{html.escape(unit)}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{html.escape(what)}">{"".join(marks)}</svg>'


def text(said: str) -> str:
    """The little Markdown that reports hold, as HTML."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", html.escape(said)))


def table(markdown_rows: list[str]) -> str:
    """A table of `report`, which made it once already."""
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in markdown_rows if row.startswith("|")]
    head, marks, body = cells[0], cells[1], cells[2:]
    classes = [' class="number"' if mark.endswith(":") else "" for mark in marks]

    def line(tag: str, row: list[str]) -> str:
        return "<tr>" + "".join(f"<{tag}{of}>{text(cell)}</{tag}>" for of, cell in zip(classes, row, strict=True)) + "</tr>"

    lines = [line("th", head), *(line("td", row) for row in body)]
    return f'<div class="table"><table>{"".join(lines)}</table></div>'


def _parts(row: dict) -> tuple[float, float]:
    """User and system time, which together are the median of the whole: their own medians may be of other rounds."""
    user, system = row["user_us_per_request"], row["system_us_per_request"]
    user_share = user / (user + system) if user + system else 0
    return row["cpu_us_per_request"] * user_share, row["cpu_us_per_request"] * (1 - user_share)


def _cost_figure(shape: dict) -> str:
    rows = [
        {"label": label, "parts": _parts(row), "low": row["cpu_low"], "high": row["cpu_high"]}
        for label, row in shape["summary"].items()
    ]
    caption = "".join(
        f"{ratio['subject']} costs {ratio['median']:.2f} times {label} ({ratio['low']:.2f}–{ratio['high']:.2f}). "
        for label, ratio in shape["ratios"].items()
    )
    plot = bars(rows, "µs of CPU per request: user full, system pale", f"CPU per request, {shape['title']}")
    return f"<figure>{plot}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _memory_figures(shape: dict) -> str:
    plots = []
    for key in next(iter(shape["memory"].values()), {}):
        rows = [{"label": name, "parts": (row[key],)} for name, row in shape["memory"].items()]
        unit = f"{key}, {shape['unit']}"
        plots.append(f"<figure>{bars(rows, unit, unit)}</figure>")
    return "".join(plots)


def _shape(name: str, shape: dict) -> str:
    tables = report.tables(shape)
    said = [f"<h2 id='{name}'>{html.escape(shape['title'])}</h2>", f"<p>{text(report.said(shape))}</p>"]
    if "memory" in shape:
        said.append(_memory_figures(shape))
    elif "summary" in shape:
        said.append(_cost_figure(shape))
    said.append("<details><summary>figures</summary>" + "".join(table(each) for each in tables) + "</details>")
    said += [f"<p>{peer} has no part in this: {html.escape(reason)}.</p>" for peer, reason in shape["absent"].items()]
    return "\n".join(said)


def page(result: dict) -> str:
    shapes = "\n".join(_shape(name, shape) for name, shape in result["shapes"].items())
    tables = "\n".join(table(each) for each in (report.goals(result), report.overview(result)) if each)
    return document(result, f"<p>{html.escape(report.conditions(result))}</p>\n{tables}\n{shapes}")


def document(result: dict, body: str) -> str:
    """The page around what is said: title, style, and what made the result."""
    title = html.escape(f"{result['title']}, {result['date']}")
    made_by = "".join(f"<li>{text(line)}</li>" for line in report.provenance(result))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{_STYLE}</style></head><body>
<h1>{title}</h1>
{body}
<h2>Made by</h2><ul>{made_by}</ul>
</body></html>
"""
