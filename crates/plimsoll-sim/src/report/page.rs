//! One HTML page with the results of scenarios, each beside its publication if it has one.
//!
//! The page is a single file that needs nothing else: no scripts, fonts or pictures from elsewhere. It follows the
//! reader's choice of light or dark, and prints in black on white, with no figure torn apart.

use std::fmt::Write;

use super::plot::{WIDTH, svg};
use super::table::{Table, all_metrics, overview_with_spread};
use crate::run::{Checked, Summary};
use crate::scenario::{DEFAULT_GROUP, Scenario};

/// A scenario and its results.
#[derive(Clone, Copy, Debug)]
pub struct Section<'s> {
    /// The scenario.
    pub scenario: &'s Scenario,
    /// Its results.
    pub summary: &'s Summary,
    /// Where the scenario comes from.
    pub origin: Origin,
    /// The shell command that gives the same numbers again.
    pub command: &'s str,
}

/// Where a scenario comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It comes with the binary.
    BuiltIn,
    /// A file of the user's.
    Own,
}

/// Text as it may stand anywhere in HTML, attributes included.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Text with names between backticks, as in a doc comment, for HTML outside attributes.
fn prose(text: &str) -> String {
    let pieces: Vec<String> = text.split('`').map(escape).collect();
    if pieces.len().is_multiple_of(2) {
        // A backtick without its fellow.
        return escape(text);
    }
    let piece = |(i, piece): (usize, String)| if i % 2 == 0 { piece } else { format!("<code>{piece}</code>") };
    pieces.into_iter().enumerate().map(piece).collect()
}

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1e24; --paper: #ffffff; --faint: #5c6470; --rule: #d8dce2; --tint: #f4f6f8;
  --good: #14713f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ec; --paper: #15181d; --faint: #a2abb8; --rule: #363c46;
  --tint: #1d2128; --good: #5ec48c; --bad: #ff8a80; } }
@media print { :root { --ink: #000; --paper: #fff; --faint: #444; --rule: #bbb; --tint: #fff; --good: #000; --bad: #000; }
  nav { break-after: page; } details:not([open]) { display: none; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 52rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--rule); line-height: 1.3; }
h2 code { font-size: .75em; color: var(--faint); font-weight: normal; white-space: nowrap; }
a { color: inherit; }
blockquote { margin: 1rem 0; padding: .5rem 1rem; border-left: 3px solid var(--rule); background: var(--tint); }
blockquote p { margin: .3rem 0; } .source { color: var(--faint); font-size: .9rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--rule); }
tr.has-why td { border-bottom: none; padding-bottom: 0; } td.why { color: var(--faint); padding-top: .1rem; }
td:first-child { overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--good); white-space: nowrap; } .bad { color: var(--bad); font-weight: bold; white-space: nowrap; }
figure { margin: 1.5rem 0; break-inside: avoid; } figure svg { width: 100%; height: auto; display: block; }
tr { break-inside: avoid; } h2, h3 { break-after: avoid; } summary { cursor: pointer; margin: 1rem 0; }
";

/// The page.
#[must_use]
pub fn page(sections: &[Section<'_>]) -> String {
    let mut out = String::new();
    write_page(&mut out, sections).expect("writing to a string does not fail");
    out
}

fn write_page(out: &mut String, sections: &[Section<'_>]) -> std::fmt::Result {
    let title = &escape(&page_title(sections));
    writeln!(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(out, "<title>{title}</title>\n<style>{STYLE}figure svg {{ max-width: {WIDTH}px; }}\n</style>\n</head>")?;
    writeln!(out, "<body>\n<h1>{title}</h1>")?;
    let (checks, failed) = sections
        .iter()
        .flat_map(|section| &section.summary.checks)
        .fold((0, 0), |(all, bad), one| (all + 1, bad + usize::from(!one.is_ok())));
    let counts = if checks == 0 { "none".to_owned() } else { format!("{} ok, {failed} failed", checks - failed) };
    writeln!(
        out,
        "<p>All numbers come from simulations that run the balancing code of the proxy and the library. \
         Scenarios: {}. Checks: {counts}.</p>",
        sections.len(),
    )?;
    if sections.len() > 1 {
        contents(out, sections)?;
    }
    for section in sections {
        write_section(out, section)?;
    }
    writeln!(out, "</body>\n</html>")
}

/// Heading of a page of built-in scenarios: each stands beside its publication.
const PUBLISHED: &str = "Plimsoll: published results, reproduced";

/// A page about the user's own scenarios has their names, so that pages can be told apart.
fn page_title(sections: &[Section<'_>]) -> String {
    let own: Vec<&str> = (sections.iter())
        .filter(|section| section.origin == Origin::Own)
        .map(|section| section.scenario.name.as_str())
        .collect();
    match own.len() {
        0 => PUBLISHED.to_owned(),
        count if count == sections.len() => own.join(", "),
        _ => format!("{}, and published results", own.join(", ")),
    }
}

fn contents(out: &mut String, sections: &[Section<'_>]) -> std::fmt::Result {
    writeln!(out, "<nav aria-label=\"Contents\">\n<h2>Contents</h2>")?;
    let mut group = None;
    for Section { scenario, summary, .. } in sections {
        if group != Some(&scenario.group) {
            let end = if group.is_some() { "</ul>\n" } else { "" };
            let heading = if scenario.group == DEFAULT_GROUP { "Your scenarios" } else { &scenario.group };
            writeln!(out, "{end}<h3>{}</h3>\n<ul>", escape(heading))?;
            group = Some(&scenario.group);
        }
        let (name, title) = (escape(&scenario.name), escape(&scenario.title));
        let result = if summary.checks.is_empty() { "no checks" } else { verdict(summary.is_ok()) };
        writeln!(out, "<li><a href=\"#{name}\">{title}</a> {result}</li>")?;
    }
    writeln!(out, "{}</nav>", if group.is_some() { "</ul>\n" } else { "" })
}

/// Whether it is as expected: a sign and a word, for those who see no colours.
fn verdict(ok: bool) -> &'static str {
    if ok { "<span class=\"good\">✓ ok</span>" } else { "<span class=\"bad\">✗ fail</span>" }
}

fn write_section(out: &mut String, Section { scenario, summary, command, .. }: &Section<'_>) -> std::fmt::Result {
    let (name, title) = (escape(&scenario.name), escape(&scenario.title));
    // Without a title of its own, a scenario has its name as title.
    let code = if scenario.title == scenario.name { String::new() } else { format!(" <code>{name}</code>") };
    writeln!(out, "<section>\n<h2 id=\"{name}\">{title}{code}</h2>")?;
    if !scenario.says.is_empty() || !scenario.source.is_empty() {
        writeln!(out, "<blockquote>")?;
        for paragraph in scenario.says.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            writeln!(out, "<p>{}</p>", prose(paragraph.trim()))?;
        }
        if !scenario.source.is_empty() {
            writeln!(out, "<p class=\"source\">Source: {}</p>", prose(&scenario.source))?;
        }
        writeln!(out, "</blockquote>")?;
    }
    if let Some(table) = overview_with_spread(scenario, summary) {
        write_table(out, &table)?;
    }
    write_checks(out, summary)?;
    for plotted in &summary.figures {
        writeln!(out, "<figure>\n{}\n</figure>", svg(plotted).trim())?;
    }
    let metrics = all_metrics(summary);
    // Without checks, the metrics are all there is to read.
    let open = if summary.checks.is_empty() { " open" } else { "" };
    writeln!(out, "<details{open}><summary>All {} metrics</summary>", metrics.rows.len())?;
    write_table(out, &Table { names: 1, ..metrics })?;
    let seeds: Vec<String> = summary.seeds.iter().map(u64::to_string).collect();
    writeln!(out, "</details>")?;
    let means = if seeds.len() > 1 { " (values are means)" } else { "" };
    let (seeds, command) = (seeds.join(", "), escape(command));
    writeln!(out, "<p class=\"source\">Seeds: {seeds}{means}. To run it again: <code>{command}</code></p>")?;
    writeln!(out, "</section>")
}

fn write_table(out: &mut String, table: &Table) -> std::fmt::Result {
    let class = |column: usize| if column < table.names { "" } else { " class=\"number\"" };
    let cells = |tag: &str, cells: &[String]| -> String {
        let cell = |(column, text): (usize, &String)| format!("<{tag}{}>{}</{tag}>", class(column), escape(text));
        cells.iter().enumerate().map(cell).collect()
    };
    writeln!(out, "<div class=\"wide\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>", cells("th", &table.headings))?;
    for row in &table.rows {
        writeln!(out, "<tr>{}</tr>", cells("td", row))?;
    }
    writeln!(out, "</tbody></table></div>")
}

fn write_checks(out: &mut String, summary: &Summary) -> std::fmt::Result {
    if summary.checks.is_empty() {
        return writeln!(out, "<p>This scenario has no checks.</p>");
    }
    let spread = if has_spread(summary) { "<th class=\"number\">min to max</th>" } else { "" };
    writeln!(out, "<div class=\"wide\"><table>\n<thead><tr><th>check</th><th class=\"number\">got</th>{spread}")?;
    writeln!(out, "<th class=\"number\">expected</th><th></th></tr></thead>\n<tbody>")?;
    for checked in &summary.checks {
        write_check(out, checked, has_spread(summary))?;
    }
    writeln!(out, "</tbody></table></div>")
}

fn has_spread(summary: &Summary) -> bool {
    summary.seeds.len() > 1
}

fn write_check(out: &mut String, checked: &Checked, has_spread: bool) -> std::fmt::Result {
    let check = &checked.check;
    let [least, greatest] = checked.spread.map(short);
    let spread = if least == greatest { least } else { format!("{least} to {greatest}") };
    let spread = if has_spread { format!("<td class=\"number\">{spread}</td>") } else { String::new() };
    writeln!(
        out,
        "<tr class=\"has-why\"><td>{}</td><td class=\"number\">{}</td>{spread}<td class=\"number\">{}</td><td>{}</td></tr>",
        escape(&check.name()),
        short(checked.got),
        range(check.low, check.high),
        verdict(checked.is_ok()),
    )?;
    let columns = if has_spread { 5 } else { 4 };
    writeln!(out, "<tr><td class=\"why\" colspan=\"{columns}\">{}</td></tr>", prose(&check.why))
}

/// A range in words that fit into a table, its ends as the scenario has them.
#[must_use]
pub fn range(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(low), Some(high)) if low == high => low.to_string(),
        (Some(low), Some(high)) => format!("{low} to {high}"),
        (Some(low), None) => format!("at least {low}"),
        (None, Some(high)) => format!("at most {high}"),
        (None, None) => "any".to_owned(),
    }
}

/// Significant digits of a number that a person reads.
const DIGITS: i32 = 4;

/// A number with four significant digits, whole numbers with all.
#[must_use]
pub fn short(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    if !(1e-4..1e15).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let decimals = (DIGITS - 1 - value.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_whole_ones_exact() {
        for (value, text) in [
            (1.0, "1"),
            (1_234_567.0, "1234567"),
            (1.23456, "1.235"),
            (123.456, "123.5"),
            (98_765.4, "98765"),
            (0.000_5, "0.0005"),
            (-0.25, "-0.25"),
            (1.5e-9, "1.500e-9"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_range_is_told_exactly() {
        assert_eq!(range(Some(1.25), Some(2.0)), "1.25 to 2");
        assert_eq!(range(Some(0.498_999), Some(0.499_001)), "0.498999 to 0.499001");
        assert_eq!(range(Some(0.999_999), Some(1.000_001)), "0.999999 to 1.000001");
        assert_eq!(range(Some(0.9), None), "at least 0.9");
        assert_eq!(range(None, Some(0.0)), "at most 0");
        assert_eq!(range(Some(3.0), Some(3.0)), "3");
    }

    #[test]
    fn names_between_backticks_are_code() {
        assert_eq!(prose("`a<b` is `c`."), "<code>a&lt;b</code> is <code>c</code>.");
        assert_eq!(prose("one ` alone"), "one ` alone");
    }

    #[test]
    fn nothing_of_a_text_is_taken_for_markup() {
        assert_eq!(escape("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }
}
