//! The parts of the screen, each as lines of a width.

use std::collections::BTreeMap;

use plimsoll_admin::{Live, LiveBackend, LiveCustomer, LiveShed};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::cells::{cut, flow, left, right, width as width_of, wrap};
use super::chart;
use super::theme::Theme;
use crate::fleet::sums::{Sums, merge};
use crate::top::state::{Focus, Message, Mode, State, Unit};
use crate::words::{self, clock, known, number, percent, span, state_glyph, verdict};

/// Lines that the sentence of a verdict may take.
const MAX_VERDICT: usize = 2;

/// A line with one style.
fn line(text: String, style: Style) -> Line<'static> {
    Line::from(Span::styled(text, style))
}

/// A row of a list: marked if it is selected.
fn mark(line: Line<'static>, is_selected: bool, theme: Theme) -> Line<'static> {
    if is_selected { line.style(theme.selected()) } else { line }
}

/// The process and the cluster on the left, the state of the connection on the right.
pub(super) fn head(state: &State, width: usize, theme: Theme) -> Line<'static> {
    let proxy = state.proxy();
    let Some(live) = &proxy.live else {
        return line(cut(&format!("plimsoll top · {}", proxy.admin), width), theme.title());
    };
    let process = &live.process;
    let mut told = format!("plimsoll {} · {}", process.name, process.state);
    if let Some(uptime) = process.uptime_s {
        told += &format!(" · up {}", span(uptime));
    }
    if let Some(cluster) = &live.cluster {
        let others = live.clusters.len() + live.clusters_left_off;
        told += &format!(" · cluster {}", cluster.name);
        if others > 1 {
            let why = if state.cluster.is_none() { "the worst of" } else { "one of" };
            told += &format!(" ({why} {others})");
        }
    }
    let now = if state.paused.is_some() {
        format!("paused at {}", clock(live.at))
    } else if proxy.lost.is_some() {
        format!("no answer since {}", clock(live.at))
    } else {
        format!("{} UTC", clock(live.at))
    };
    let room = width.saturating_sub(width_of(&now) + 2);
    let is_quiet = state.paused.is_none() && proxy.lost.is_none();
    let style = if is_quiet { theme.quiet() } else { theme.message(true) };
    Line::from(vec![Span::styled(left(&told, room), theme.title()), Span::raw("  "), Span::styled(now, style)])
}

/// The verdict on the cluster in words.
pub(super) fn verdict_lines(state: &State, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(live) = state.live() else {
        let why = state.proxy().lost.as_deref().unwrap_or("waits for the first answer");
        return vec![line(cut(why, width), theme.message(state.proxy().lost.is_some()))];
    };
    let Some(cluster) = &live.cluster else {
        return vec![line("the configuration has no cluster".to_owned(), theme.title())];
    };
    let gate = cluster.gate.as_ref();
    let name = gate.map(|gate| gate.verdict.as_str());
    let of = verdict(name);
    let said = match gate {
        Some(gate) => {
            let dry_run = if gate.dry_run { " (dry run)" } else { "" };
            // The sentence may begin with the word.
            let repeated = ["users are affected: ", "working as intended: "];
            let meaning = repeated.iter().find_map(|word| gate.meaning.strip_prefix(word)).unwrap_or(&gate.meaning);
            format!("{} {}{dry_run} for {}: {meaning}", of.glyph, of.word.to_uppercase(), span(gate.verdict_for_s))
        }
        None => format!("{} NO GATE: requests are counted, and their cost is not known", of.glyph),
    };
    let mut lines: Vec<_> =
        wrap(&said, width, MAX_VERDICT).into_iter().map(|text| line(text, theme.verdict(name))).collect();
    if let Some(why) = &state.proxy().lost {
        lines.push(line(cut(&format!("no answer: {why}; trying again"), width), theme.message(true)));
    }
    lines
}

/// The fleet: a row for each proxy, and the sums.
pub(super) fn fleet(state: &State, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let proxies = state.drawn();
    if proxies.len() < 2 {
        return Vec::new();
    }
    let fleet = merge(proxies.iter().map(|proxy| {
        // The last answer of a proxy that is gone would be added up for ever.
        let live = proxy.live.as_ref().filter(|_| proxy.lost.is_none());
        (proxy.admin.as_str(), live)
    }));
    let name = width.saturating_sub(61).clamp(12, 40);
    let row = |title: &str, sums: &Sums| {
        let of = verdict(sums.verdict.as_deref());
        let (offered, admitted) = match state.unit {
            Unit::Cpus if sums.offered_cpus.is_some() => (known(sums.offered_cpus), known(sums.admitted_cpus)),
            _ => (format!("{}/s", number(sums.offered_qps)), format!("{}/s", number(sums.admitted_qps))),
        };
        let used = format!("{}/{}", known(sums.used_cpus), known(sums.capacity_cpus));
        let healthy = format!("{}/{}", sums.healthy, sums.backends);
        Line::from(vec![
            Span::raw(left(title, name) + " "),
            Span::styled(left(&format!("{} {}", of.glyph, of.word), 23) + " ", theme.verdict(sums.verdict.as_deref())),
            Span::raw(format!(
                "{}{}{}{}",
                right(&offered, 8),
                right(&admitted, 9),
                right(&used, 10),
                right(&healthy, 9)
            )),
        ])
    };
    let columns = ["OFFERED", "ADMITTED", "CPUS", "HEALTHY"].into_iter().zip([8, 9, 10, 9]);
    let columns: String = columns.map(|(name, columns)| right(name, columns)).collect();
    let mut lines = vec![line(format!("{} {} {columns}", left("PROXY", name), left("VERDICT", 23)), theme.quiet())];
    for (place, of) in fleet.rows.iter().enumerate() {
        let title = of.name.map_or_else(|| of.admin.to_owned(), |name| format!("{name} {}", of.admin));
        let drawn = match &of.sums {
            Some(sums) => row(&title, sums),
            None => {
                let why = proxies[place].lost.as_deref().unwrap_or("waits for an answer");
                Line::from(vec![
                    Span::raw(left(&title, name) + " "),
                    Span::styled(cut(why, width.saturating_sub(name + 1)), theme.message(true)),
                ])
            }
        };
        lines.push(mark(drawn, place == state.shown, theme));
    }
    let title = format!("all {}, {} answer", fleet.rows.len(), fleet.answering);
    lines.push(row(&title, &fleet.sums));
    lines
}

/// The title of the chart: the load now.
pub(super) fn load(state: &State, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(cluster) = state.detail() else { return Vec::new() };
    let sums = state.live().map(Sums::of).unwrap_or_default();
    let mut parts = Vec::new();
    match state.unit() {
        Unit::Cpus => {
            parts.push(format!(
                "CPUs, 10 min: offered {}, admitted {}, shed {}",
                known(sums.offered_cpus),
                known(sums.admitted_cpus),
                known(sums.shed_cpus)
            ));
        }
        Unit::Requests => parts.push(format!(
            "Requests/s, 10 min: offered {}, admitted {}, shed {}",
            number(sums.offered_qps),
            number(sums.admitted_qps),
            number(sums.shed_qps)
        )),
    }
    if let Some(gate) = &cluster.gate {
        parts.push(format!("used {} of {}", known(gate.used_cpus), number(gate.capacity_cpus)));
        parts.push(format!("load line {}", number(gate.load_line_cpus)));
        if let Some(signal) = &gate.binding_signal {
            let load = gate.signals.get(signal).map(|load| format!(" at {}", percent(*load))).unwrap_or_default();
            parts.push(format!("limited by {signal}{load}"));
        }
    }
    flow(&parts, width).into_iter().take(1).map(|text| line(text, theme.title())).collect()
}

pub(super) fn chart(state: &State, width: usize, height: usize, theme: Theme) -> Vec<Line<'static>> {
    chart::chart(&state.proxy().points, state.unit(), width, height, theme)
}

/// The largest parts first, with their amounts.
fn reasons<'a>(parts: impl Iterator<Item = (&'a String, f64)>, unit: &str) -> String {
    let mut parts: Vec<_> = parts.filter(|(_, amount)| *amount >= 0.005).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told: Vec<String> =
        parts.into_iter().map(|(name, amount)| format!("{name} {}{unit}", number(amount))).collect();
    told.join(", ")
}

/// The four criticalities.
pub(super) fn demand(state: &State, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(cluster) = state.detail() else { return Vec::new() };
    let unit = state.unit();
    let title = format!("{}  OFFERED ADMITTED     SHED  WHY", left("CRITICALITY", 14));
    let mut lines = vec![line(cut(&title, width), theme.quiet())];
    let selected = (state.focus == Focus::Criticalities).then(|| state.place(Focus::Criticalities));
    for (place, of) in cluster.demand.iter().enumerate() {
        let (offered, admitted, shed) = match unit {
            Unit::Cpus => (known(of.offered_cpus), known(of.admitted_cpus), known(of.shed_cpus)),
            Unit::Requests => (number(of.offered_qps), number(of.admitted_qps), number(of.shed_qps)),
        };
        let amount = |shed: &LiveShed| if unit == Unit::Cpus { shed.cpus.unwrap_or_default() } else { shed.qps };
        let why = reasons(of.shed.iter().map(|(name, shed)| (name, amount(shed))), "");
        let figures = format!("{} {} {}", left(&of.criticality, 14), right(&offered, 8), right(&admitted, 8));
        let style = if of.shed_qps > 0.0 { theme.shed() } else { Style::new() };
        let drawn = Line::from(vec![
            Span::raw(figures + " "),
            Span::styled(right(&shed, 8), style),
            Span::raw("  "),
            Span::raw(left(&why, width.saturating_sub(43))),
        ]);
        lines.push(mark(drawn, selected == Some(place), theme));
    }
    lines
}

fn named(values: &BTreeMap<String, f64>, show: impl Fn(f64) -> String) -> String {
    let told: Vec<String> = values.iter().map(|(name, value)| format!("{name} {}", show(*value))).collect();
    told.join(", ")
}

/// Latency, throttling, retries, hedges and batch work: the most telling first.
pub(super) fn traffic(state: &State, width: usize) -> Vec<Line<'static>> {
    let Some((live, cluster)) = state.live().zip(state.detail()) else { return Vec::new() };
    let of = &cluster.traffic;
    let rate = |value: f64| format!("{}/s", number(value));
    let mut parts = vec![format!("{} requests, {} failures", rate(of.requests_qps), rate(of.failures_qps))];
    if let (Some(p50), Some(p99)) = (of.p50_ms, of.p99_ms) {
        parts.push(format!("p50 {} ms, p99 {} ms", number(p50), number(p99)));
    }
    if !of.throttled.is_empty() || !of.held.is_empty() {
        let held = if of.held.is_empty() { String::new() } else { format!(" (held: {})", named(&of.held, percent)) };
        let none = if of.throttled.is_empty() { "none" } else { "" };
        parts.push(format!("throttled {none}{}{held}", named(&of.throttled, rate)));
    }
    let denied = if of.retries_denied.is_empty() {
        String::new()
    } else {
        format!(", denied: {}", named(&of.retries_denied, rate))
    };
    parts.push(format!("retries {} (budget {} used){denied}", rate(of.retries_qps), percent(of.retry_budget_used)));
    if !of.unserved.is_empty() {
        parts.push(format!("unserved: {}", named(&of.unserved, rate)));
    }
    for batch in &live.batch {
        parts.push(format!(
            "batch {}: {} queued, {} of {} active",
            batch.listener, batch.queued, batch.active, batch.max_active
        ));
    }
    parts.push(format!("{} in flight, {} waiting", of.in_flight, of.waiting));
    if of.hedges_qps > 0.0 {
        parts.push(format!("hedges {}, {} first", rate(of.hedges_qps), rate(of.hedges_won_qps)));
    }
    flow(&parts, width).into_iter().map(Line::from).collect()
}

/// The title of the list of backends.
fn backends_title(state: &State, width: usize) -> String {
    let Some(cluster) = state.detail() else { return String::new() };
    let of = &cluster.backends;
    let healthy = of.by_state.get("healthy").copied().unwrap_or_default();
    let others = of.by_state.iter().filter(|(name, count)| *name != "healthy" && **count > 0);
    let others: Vec<String> = others.map(|(name, count)| format!("{count} {name}")).collect();
    let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    let mut parts = vec![format!("Backends: {healthy} of {} healthy{others}", of.total)];
    let load = |value: Option<f64>| match (value, of.measure.as_str()) {
        (None, _) => "–".to_owned(),
        (Some(value), "utilization") => percent(value),
        (Some(value), _) => number(value),
    };
    if of.max.is_some() {
        let unit = if of.measure == "utilization" { "" } else { " in flight" };
        parts.push(format!("load max {}, mean {}{unit}", load(of.max), load(of.mean)));
        parts.extend(of.max_over_mean.map(|ratio| format!("max/mean {ratio:.2}")));
    }
    let choice = &state.choice;
    if !choice.filter.is_empty() {
        parts.push(format!("filter `{}`", choice.filter));
    }
    if choice.is_unhealthy_only {
        parts.push("unhealthy only".to_owned());
    }
    if !of.is_complete {
        parts.push(format!("{} of {} listed: the most loaded, and unhealthy ones", of.rows.len(), of.total));
    }
    parts.push(format!("by {}", choice.sort.name()));
    flow(&parts, width).swap_remove(0)
}

fn backend(row: &LiveBackend, address: usize, measure: &str, theme: Theme, width: usize) -> Line<'static> {
    let load = match (row.load, measure) {
        (None, _) => "–".to_owned(),
        (Some(load), "utilization") => percent(load),
        (Some(load), _) => number(load),
    };
    let known = words::state(&row.state);
    let state = format!("{} {}", state_glyph(known), row.state);
    let latency = row.latency_ms.map_or_else(|| "–".to_owned(), |ms| format!("{} ms", number(ms)));
    let why = format!("{} {}", right(&span(row.since_s), 6), row.reason);
    let rest = width.saturating_sub(address + 48);
    Line::from(vec![
        Span::raw(left(&row.address, address) + " "),
        Span::styled(left(&state, 13), theme.state(known)),
        Span::raw(format!(
            "{}{}{}{}  {}",
            right(&load, 5),
            right(&row.in_flight.to_string(), 9),
            right(&latency, 10),
            right(&percent(row.error_share), 7),
            left(&why, rest)
        )),
    ])
}

/// Backends, in at most `height` lines; the selected one is among them.
pub(super) fn backends(state: &State, width: usize, height: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(cluster) = state.detail() else { return Vec::new() };
    let rows = state.backends();
    let longest = rows.iter().map(|row| width_of(&row.address)).max().unwrap_or(0);
    let address = longest.clamp(15, width.saturating_sub(64).max(21));
    let columns =
        format!("{} {} LOAD IN FLIGHT   LATENCY ERRORS   SINCE REASON", left("BACKEND", address), left("STATE", 13));
    let mut lines = vec![line(backends_title(state, width), theme.title())];
    if rows.is_empty() {
        lines.push(line("no backend is in this list".to_owned(), theme.quiet()));
        lines.truncate(height);
        return lines;
    }
    lines.push(line(cut(&columns, width), theme.quiet()));
    let shown = height.saturating_sub(lines.len());
    let place = state.place(Focus::Backends);
    let first = (place + 1).saturating_sub(shown);
    let selected = (state.focus == Focus::Backends).then_some(place);
    for (place, row) in rows.iter().enumerate().skip(first).take(shown) {
        let drawn = backend(row, address, &cluster.backends.measure, theme, width);
        lines.push(mark(drawn, selected == Some(place), theme));
    }
    lines.truncate(height);
    lines
}

/// Lines that the list of backends would take.
pub(super) fn backends_height(state: &State) -> usize {
    state.backends().len().max(1) + 2
}

fn customer(of: &LiveCustomer, unit: Unit, name: usize, width: usize, theme: Theme) -> Line<'static> {
    let (offered, used, shed) = match unit {
        Unit::Cpus => (number(of.offered_cpus), number(of.used_cpus), number(of.shed_cpus)),
        Unit::Requests => {
            (number(of.offered_qps), number((of.offered_qps - of.shed_qps).max(0.0)), number(of.shed_qps))
        }
    };
    let hard = of.hard_limit_cpus.map_or_else(|| "–".to_owned(), number);
    let mut why = reasons(of.shed.iter().map(|(name, qps)| (name, *qps)), "/s");
    if let Some(limit) = of.fleet.fleet_limit_cpus {
        let used = of.fleet.fleet_used_cpus.map(|used| format!("{} of ", number(used))).unwrap_or_default();
        let cut = of.fleet.fleet_cut.as_ref().map(|cut| format!(", cut at {cut}")).unwrap_or_default();
        let between = if why.is_empty() { "" } else { "; " };
        why += &format!("{between}fleet {used}{}{cut}", number(limit));
    }
    let style = if of.shed_qps > 0.0 { theme.shed() } else { Style::new() };
    Line::from(vec![
        Span::raw(format!("{} {}{}", left(&of.name, name), right(&offered, 8), right(&used, 9))),
        Span::styled(right(&shed, 7), style),
        Span::raw(format!(
            "{}{}  {}",
            right(&number(of.soft_limit_cpus), 7),
            right(&hard, 7),
            left(&why, width.saturating_sub(name + 41))
        )),
    ])
}

/// Customers, in at most `height` lines.
pub(super) fn customers(state: &State, width: usize, height: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(cluster) = state.detail() else { return Vec::new() };
    if cluster.customers.is_empty() || height < 2 {
        return Vec::new();
    }
    let name = width.saturating_sub(60).clamp(14, 32);
    let columns = format!("{}  OFFERED ADMITTED   SHED   SOFT   HARD  WHY", left("CUSTOMER", name));
    let mut lines = vec![line(cut(&columns, width), theme.quiet())];
    let place = state.place(Focus::Customers);
    let selected = (state.focus == Focus::Customers).then_some(place);
    let shown = height - 1;
    let first = (place + 1).saturating_sub(shown);
    for (place, of) in cluster.customers.iter().enumerate().skip(first).take(shown) {
        let drawn = customer(of, state.unit(), name, width, theme);
        lines.push(mark(drawn, selected == Some(place), theme));
    }
    lines
}

/// The latest changes, in at most `height` lines.
pub(super) fn changes(live: &Live, width: usize, height: usize, theme: Theme) -> Vec<Line<'static>> {
    let told = live.changes.iter().take(height).map(|of| {
        let cluster = of.cluster.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
        let time = Span::styled(clock(of.at) + " ", theme.quiet());
        let text = format!("{} {cluster}{}: {}", of.kind, of.subject, of.text);
        Line::from(vec![time, Span::raw(cut(&text, width.saturating_sub(9)))])
    });
    told.collect()
}

/// The last line: a message, the filter that is typed, or the keys.
pub(super) fn foot(state: &State, width: usize, theme: Theme) -> Line<'static> {
    if let Mode::Filter(_) = state.mode {
        return line(
            cut(&format!("filter: {}▏ Enter keeps it, Esc does not", state.choice.filter), width),
            theme.title(),
        );
    }
    if let Some(Message { text, is_bad }) = &state.message {
        return line(cut(text, width), theme.message(*is_bad));
    }
    let keys = "? help · q quit · ←→ cluster · ↑↓ select · / filter · e explain · t tap · d drain · s sort · u unit";
    let parts: Vec<String> = keys.split(" · ").map(str::to_owned).collect();
    line(flow(&parts, width).swap_remove(0), theme.quiet())
}
