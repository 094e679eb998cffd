//! The backends of one cluster, each once, in the eyes of several proxies.
//!
//! - State, reason, its time: the worst that a proxy sees, with the number of proxies that see it so.
//! - Load: of utilization the largest, since the backend reports its whole load to each proxy; of
//!   requests in flight the sum.
//! - Requests in flight: the sum.
//! - Requests a second that it reports, latency, share of failures: the largest.
//!
//! With the whole lists of all proxies, the figures above the list are those of its rows. Else they
//! are estimates: `total` is the largest list or the number of rows, if that is more; the number of
//! a state other than healthy is the largest that a proxy has; the mean is weighted by healthy
//! backends, the largest load is that of the rows, and the histogram counts a backend once for each
//! of its proxies.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_admin::parts::{MAX_ROWS, MAX_ROWS_OF_MANY, significant};
use plimsoll_admin::{LiveBackend, LiveBackends, LiveCluster, LiveSeen};
use plimsoll_core::health::State;
use plimsoll_core::{LOAD_BINS, LoadMeasure, spread};

use super::largest;

pub(super) fn merge(clusters: &[&LiveCluster]) -> LiveBackends {
    let lists: Vec<&LiveBackends> = clusters.iter().map(|cluster| &cluster.backends).collect();
    if let [only] = lists[..] {
        return LiveBackends { rows: only.rows.iter().map(alone).collect(), ..only.clone() };
    }
    // Loads of two measures cannot be compared: reports of backends say more.
    let utilization = LoadMeasure::Utilization.name();
    let has_reports = lists.iter().any(|list| list.measure == utilization && list.mean.is_some());
    let measure = if has_reports { utilization } else { LoadMeasure::InFlight.name() };
    let rows = rows(&lists, measure);
    let is_complete = lists.iter().all(|list| list.is_complete);
    let merged = if is_complete { whole(rows, measure) } else { estimate(rows, &lists, measure) };
    let known = lists.iter().map(|list| list.known).max().unwrap_or(0).max(merged.total as usize);
    LiveBackends { known, measure: measure.to_owned(), ..merged }
}

fn alone(row: &LiveBackend) -> LiveBackend {
    LiveBackend { seen: Some(LiveSeen { proxies: 1, in_state: 1 }), ..row.clone() }
}

/// How bad a state is. The order of the health machine's list is another one.
fn badness(state: &str) -> usize {
    let order = [State::Healthy, State::Connecting, State::LameDuck, State::Refusing, State::Ejected];
    // One of a later version is shown rather than hidden.
    order.iter().position(|each| each.name() == state).unwrap_or(order.len())
}

fn is_healthy(row: &LiveBackend) -> bool {
    row.state == State::Healthy.name()
}

/// Each backend once, by address.
fn rows(lists: &[&LiveBackends], measure: &str) -> Vec<LiveBackend> {
    let mut merged: BTreeMap<&str, LiveBackend> = BTreeMap::new();
    for list in lists {
        for row in &list.rows {
            let load = row.load.filter(|_| list.measure == measure);
            match merged.get_mut(row.address.as_str()) {
                None => drop(merged.insert(&row.address, LiveBackend { load, ..alone(row) })),
                Some(known) => add(known, row, load, measure),
            }
        }
    }
    merged.into_values().collect()
}

fn add(sum: &mut LiveBackend, of: &LiveBackend, load: Option<f64>, measure: &str) {
    let mut seen = sum.seen.unwrap_or_default();
    seen.proxies += 1;
    match badness(&of.state).cmp(&badness(&sum.state)) {
        std::cmp::Ordering::Less => {}
        std::cmp::Ordering::Equal => {
            seen.in_state += 1;
            if of.since_s > sum.since_s {
                sum.reason.clone_from(&of.reason);
                sum.since_s = of.since_s;
            }
        }
        std::cmp::Ordering::Greater => {
            seen.in_state = 1;
            sum.state.clone_from(&of.state);
            sum.reason.clone_from(&of.reason);
            sum.since_s = of.since_s;
        }
    }
    sum.seen = Some(seen);
    sum.load = match (sum.load, load) {
        (Some(a), Some(b)) if measure == LoadMeasure::InFlight.name() => Some(a + b),
        (a, b) => largest(a, b),
    };
    sum.in_flight = sum.in_flight.saturating_add(of.in_flight);
    sum.qps = largest(sum.qps, of.qps);
    sum.latency_ms = largest(sum.latency_ms, of.latency_ms);
    sum.error_share = sum.error_share.max(of.error_share);
    if sum.locality.is_none() {
        sum.locality.clone_from(&of.locality);
    }
}

/// The figures of a list that has all backends.
fn whole(rows: Vec<LiveBackend>, measure: &str) -> LiveBackends {
    let total = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let mut by_state: BTreeMap<String, u32> = State::ALL.map(|state| (state.name().to_owned(), 0)).into();
    for row in &rows {
        *by_state.entry(row.state.clone()).or_default() += 1;
    }
    let loads: Vec<f64> = rows.iter().filter(|row| is_healthy(row)).filter_map(|row| row.load).collect();
    let max = loads.iter().copied().reduce(f64::max);
    let mean = max.map(|_| loads.iter().sum::<f64>() / loads.len() as f64);
    let spread = spread::of(loads.iter().copied());
    let bin = bin(measure, max.unwrap_or(0.0));
    let mut histogram = vec![0; if max.is_some() { LOAD_BINS } else { 0 }];
    for load in &loads {
        histogram[place(*load, bin)] += 1;
    }
    let is_cut = rows.len() > MAX_ROWS;
    let (rows, left_off) = if is_cut { cut(rows) } else { (rows, 0) };
    LiveBackends {
        total,
        known: rows.len(),
        by_state,
        max: max.map(significant),
        mean: mean.map(significant),
        max_over_mean: spread.map(|of| significant(of.max_over_mean)),
        waste: spread.map(|of| significant(of.waste)),
        histogram,
        bin: if max.is_some() { bin } else { 0.0 },
        is_complete: !is_cut,
        left_off,
        rows,
        ..LiveBackends::default()
    }
}

/// The figures where some lists are cut.
fn estimate(rows: Vec<LiveBackend>, lists: &[&LiveBackends], measure: &str) -> LiveBackends {
    let listed = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let total = lists.iter().map(|list| list.total).max().unwrap_or(0).max(listed);
    let mut by_state: BTreeMap<String, u32> = BTreeMap::new();
    for (state, backends) in lists.iter().flat_map(|list| &list.by_state) {
        let most = by_state.entry(state.clone()).or_default();
        *most = (*most).max(*backends);
    }
    // States of rows count too: each proxy may see other backends as unhealthy.
    for state in State::ALL.map(State::name) {
        let found = rows.iter().filter(|row| row.state == state).count() as u32;
        let most = by_state.entry(state.to_owned()).or_default();
        *most = (*most).max(found);
    }
    let healthy = State::Healthy.name();
    let unhealthy: u32 = by_state.iter().filter(|(state, _)| *state != healthy).map(|(_, backends)| backends).sum();
    by_state.insert(healthy.to_owned(), total.saturating_sub(unhealthy));

    let same: Vec<&&LiveBackends> =
        lists.iter().filter(|list| list.measure == measure && list.mean.is_some()).collect();
    let healthy_in = |list: &LiveBackends| f64::from(list.by_state.get(healthy).copied().unwrap_or(0));
    let weight: f64 = same.iter().map(|list| healthy_in(list)).sum();
    let sum: f64 = same.iter().map(|list| list.mean.unwrap_or(0.0) * healthy_in(list)).sum();
    // Requests in flight of all proxies are at the same backends.
    let divisor = if measure == LoadMeasure::InFlight.name() { f64::from(by_state[healthy]) } else { weight };
    let mean = (divisor > 0.0 && !same.is_empty()).then(|| sum / divisor);
    let of_rows = rows.iter().filter(|row| is_healthy(row)).filter_map(|row| row.load).reduce(f64::max);
    let max = largest(of_rows, same.iter().filter_map(|list| list.max).reduce(f64::max)).filter(|_| mean.is_some());
    let ratio = max.zip(mean).filter(|(_, mean)| *mean > 0.0);

    let bin = same.iter().map(|list| list.bin).fold(0.0, f64::max);
    let mut histogram = vec![0_u32; if bin > 0.0 { LOAD_BINS } else { 0 }];
    for list in &same {
        for (at, backends) in list.histogram.iter().enumerate().filter(|_| bin > 0.0) {
            let bin_of = &mut histogram[place((at as f64 + 0.5) * list.bin, bin)];
            *bin_of = bin_of.saturating_add(*backends);
        }
    }
    let not_listed =
        |rows: &[LiveBackend]| (unhealthy as usize).saturating_sub(rows.iter().filter(|row| !is_healthy(row)).count());
    let (rows, _) = cut(rows);
    LiveBackends {
        total,
        by_state,
        max: max.map(significant),
        mean: mean.map(significant),
        max_over_mean: ratio.map(|(max, mean)| significant(max / mean)),
        waste: ratio.map(|(max, mean)| significant((max - mean).max(0.0) * f64::from(total.saturating_sub(unhealthy)))),
        histogram,
        bin,
        is_complete: false,
        left_off: not_listed(&rows),
        rows,
        ..LiveBackends::default()
    }
}

/// The width of a bin, as a proxy has it.
fn bin(measure: &str, largest: f64) -> f64 {
    if measure == LoadMeasure::Utilization.name() {
        1.0 / LOAD_BINS as f64
    } else {
        (largest as u64 + 1).div_ceil(LOAD_BINS as u64) as f64
    }
}

fn place(load: f64, bin: f64) -> usize {
    ((load / bin + 1e-9) as usize).min(LOAD_BINS - 1)
}

/// The rows to show of many, as a proxy chooses them: the most loaded and unhealthy ones. Returns
/// the number of unhealthy ones beyond them too.
fn cut(rows: Vec<LiveBackend>) -> (Vec<LiveBackend>, usize) {
    let (mut healthy, mut unhealthy): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_healthy);
    healthy.sort_by(|a, b| b.load.unwrap_or(-1.0).total_cmp(&a.load.unwrap_or(-1.0)));
    // What all proxies see, and sees worst, comes first.
    unhealthy.sort_by_key(|row| (Reverse(row.seen.map(|seen| seen.in_state)), Reverse(badness(&row.state))));
    let most = (MAX_ROWS_OF_MANY / 3).max(MAX_ROWS_OF_MANY.saturating_sub(unhealthy.len())).min(healthy.len());
    healthy.truncate(most);
    let left = MAX_ROWS_OF_MANY - most;
    let left_off = unhealthy.len().saturating_sub(left);
    unhealthy.truncate(left);
    healthy.extend(unhealthy);
    (healthy, left_off)
}
