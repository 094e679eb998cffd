//! The measurement of one stage: requests by customer as the load counts them, costs as the backends
//! tell them, CPU as the kernel counts it, and cuts as the quota server has them.

use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

use super::customer::CUSTOMERS;
use super::stage::Stage;
use super::state::{Cut, State};
use crate::load::record::Record;
use crate::load::tally::{Group, Tally};

/// A phase under way.
#[derive(Debug)]
pub(crate) struct Phase {
    stage: Stage,
    began: Instant,
    length: Duration,
    settling: Stretch,
    measured: Stretch,
    /// The time of the last note.
    noted: Instant,
    /// Whether anything was noted after the traffic had settled.
    is_settled: bool,
    /// The last state that the quota server had.
    state: Option<State>,
    is_server_lost: bool,
}

/// The requests and the CPU of a part of a phase.
#[derive(Clone, Debug)]
struct Stretch {
    /// By customer.
    records: Vec<Record>,
    /// CPU seconds of all backends at its beginning and its end, by the kernel.
    cpu: [f64; 2],
}

impl Stretch {
    fn new(cpu: f64) -> Self {
        Self { records: vec![Record::default(); CUSTOMERS.len()], cpu: [cpu; 2] }
    }

    fn append(&mut self, records: &[Record]) {
        self.records.iter_mut().zip(records).for_each(|(all, record)| all.append(record));
    }

    fn seconds(&self) -> f64 {
        self.records.iter().map(|record| record.elapsed.as_secs_f64()).fold(f64::MIN_POSITIVE, f64::max)
    }
}

impl Phase {
    /// Begins now. `cpu` is the CPU usage of all backends until now, in seconds, and `state` the last one of
    /// the phase before.
    pub(crate) fn begin(stage: Stage, now: Instant, length: Duration, cpu: f64, state: Option<State>) -> Self {
        let (settling, measured) = (Stretch::new(cpu), Stretch::new(cpu));
        Self {
            stage,
            began: now,
            length,
            settling,
            measured,
            noted: now,
            is_settled: false,
            state,
            is_server_lost: false,
        }
    }

    /// The stage that it measures.
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// When its time is up.
    pub(crate) fn end(&self) -> Instant {
        self.began + self.length
    }

    /// When the quota server comes back.
    pub(crate) fn outage_end(&self) -> Instant {
        self.began + self.length.mul_f64(self.stage.outage())
    }

    fn measured_from(&self) -> Instant {
        self.began + self.length.mul_f64(self.stage.settling())
    }

    /// When something is to be noted or done at the latest.
    pub(crate) fn next_border(&self, now: Instant) -> Instant {
        let borders = [self.measured_from(), self.outage_end()];
        borders.into_iter().filter(|border| *border > now).min().unwrap_or_else(|| self.end())
    }

    /// Whether the figures do not count yet.
    pub(crate) fn is_settling(&self) -> bool {
        !self.is_settled
    }

    /// The last state that the quota server had.
    pub(crate) fn into_state(self) -> Option<State> {
        self.state
    }

    /// Whether the quota server was lost at the last note.
    pub(crate) fn is_server_lost(&self) -> bool {
        self.is_server_lost
    }

    /// Notes what happened since the last note. Without a `state` the quota server is lost.
    pub(crate) fn note(&mut self, now: Instant, cpu: f64, records: &[Record], state: Option<State>) {
        self.is_server_lost = state.is_none();
        self.state = state.or(self.state.take());
        self.is_settled = self.noted >= self.measured_from();
        self.noted = now;
        if self.is_settled {
            self.measured.append(records);
            self.measured.cpu[1] = cpu;
        } else {
            self.settling.append(records);
            self.settling.cpu[1] = cpu;
            self.measured.cpu = [cpu; 2];
        }
    }

    /// Notes requests whose answers came after the end.
    pub(crate) fn note_late(&mut self, records: &[Record]) {
        self.measured.append(records);
    }

    /// Requests that failed until now, and were not refused.
    pub(crate) fn failed(&self) -> u64 {
        let all = self.settling.records.iter().chain(&self.measured.records);
        let tallies = all.map(|record| record.tallies.of(Group::All));
        tallies.map(|tally| tally.requests - tally.ok - tally.shed + tally.dropped).sum()
    }

    /// The figures, of the part that is measured once there is one. `names` are those of the criticalities.
    pub(crate) fn result(&self, names: &[String]) -> QuotaResult {
        let stretch = if self.is_settled { &self.measured } else { &self.settling };
        let seconds = stretch.seconds();
        let cut = |at: usize| self.state.as_ref().and_then(|state| state.cuts[at].clone());
        let customers = stretch.records.iter().enumerate().map(|(at, record)| CustomerResult {
            name: CUSTOMERS[at].name,
            limit: CUSTOMERS[at].limit,
            refused_by_criticality: names
                .iter()
                .enumerate()
                .map(|(number, name)| (name.clone(), refused(&record.tallies.of(Group::Criticality(number)))))
                .collect(),
            cut: cut(at),
            ..CustomerResult::of(&record.tallies.of(Group::All), seconds)
        });
        let customers: Vec<CustomerResult> = customers.collect();
        let tallies = || stretch.records.iter().map(|record| record.tallies.of(Group::All));
        QuotaResult {
            phase: self.stage.name(),
            backends_cpus: (stretch.cpu[1] - stretch.cpu[0]) / seconds,
            requests_cpus: customers.iter().map(|customer| customer.used).sum(),
            held: self.state.as_ref().map(|state| state.held.clone()).unwrap_or_default(),
            overloaded: tallies().map(|tally| tally.shed - tally.limited).sum(),
            failed: self.failed(),
            customers,
        }
    }
}

/// The figures of a stage. The fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QuotaResult {
    /// The name of the stage.
    pub(crate) phase: &'static str,
    /// CPU of all backends, by the kernel.
    pub(crate) backends_cpus: f64,
    /// CPU of served requests, by the backends.
    pub(crate) requests_cpus: f64,
    /// The parts of the limit of the first customer that the backends held at the end, in CPUs.
    #[serde(rename = "held_cpus")]
    pub(crate) held: Vec<f64>,
    /// Requests that backends shed by themselves, for an overload of the machine.
    pub(crate) overloaded: u64,
    /// Requests that failed and were not refused or shed, over the whole stage.
    pub(crate) failed: u64,
    /// By customer.
    pub(crate) customers: Vec<CustomerResult>,
}

/// The figures of one customer.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct CustomerResult {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its limit over all backends.
    #[serde(rename = "limit_cpus")]
    pub(crate) limit: f64,
    /// CPUs that its requests ask for: refused ones count with the mean cost of the others. `null` if none was served.
    #[serde(rename = "offered_cpus")]
    pub(crate) offered: Option<f64>,
    /// CPUs of its served requests.
    #[serde(rename = "used_cpus")]
    pub(crate) used: f64,
    /// Requests that ended.
    pub(crate) requests: u64,
    /// The part of them that its limit refused; `null` without requests.
    pub(crate) refused: Option<f64>,
    /// The same by criticality, from the most critical down.
    #[serde(serialize_with = "as_map")]
    pub(crate) refused_by_criticality: Vec<(String, Option<f64>)>,
    /// Where it was cut at the end; `null` if it was not.
    pub(crate) cut: Option<Cut>,
    /// 99th percentile of the latency of served requests, milliseconds.
    pub(crate) p99_ms: Option<f64>,
}

impl CustomerResult {
    fn of(tally: &Tally, seconds: f64) -> Self {
        let used = tally.cost_us as f64 / 1e6 / seconds;
        Self {
            offered: (tally.ok > 0).then(|| used * tally.requests as f64 / tally.ok as f64),
            used,
            requests: tally.requests,
            refused: refused(tally),
            p99_ms: tally.useful_ms(0.99),
            ..Self::default()
        }
    }
}

fn refused(tally: &Tally) -> Option<f64> {
    (tally.requests > 0).then(|| tally.limited as f64 / tally.requests as f64)
}

/// As a map that keeps the order.
fn as_map<S: Serializer>(rows: &[(String, Option<f64>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rows.iter().map(|(name, part)| (name, part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::mix::Kind;
    use crate::load::tally::Fate;

    fn records(fates: &[Fate]) -> Vec<Record> {
        let mut records = vec![Record::default(); CUSTOMERS.len()];
        let kind = Kind { criticality: Some(0), customer: None };
        for fate in fates {
            records[0].tallies.ended(kind, Duration::from_millis(2), *fate);
            match fate {
                Fate::Useful => records[0].tallies.charged(kind, 1_000_000),
                Fate::Shed => records[0].tallies.limited(kind),
                Fate::Late | Fate::Failed => {}
            }
        }
        records[0].elapsed = Duration::from_secs(2);
        records
    }

    fn state(admitted: f64) -> State {
        let cut = Cut { criticality: "sheddable".to_owned(), admitted };
        State { is_sure: true, connected: 8, cuts: vec![Some(cut), None, None, None], held: vec![0.1; 8] }
    }

    #[test]
    fn figures_are_of_the_time_after_settling_and_failures_of_all() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut phase = Phase::begin(Stage::Triple, start, Duration::from_secs(10), 10.0, None);
        let names = ["critical".to_owned()];
        assert_eq!(phase.next_border(start), at(4));
        phase.note(at(4), 12.0, &records(&[Fate::Failed, Fate::Shed]), Some(state(0.9)));
        assert!(phase.is_settling());
        assert_eq!(phase.next_border(at(4)), at(10));
        assert_eq!(phase.result(&names).customers[0].refused, Some(0.5));
        phase.note(at(10), 13.0, &records(&[Fate::Useful, Fate::Shed, Fate::Shed, Fate::Shed]), Some(state(0.3)));
        assert!(!phase.is_settling());
        let result = phase.result(&names);
        let acme = &result.customers[0];
        assert_eq!((acme.used, acme.offered, acme.refused), (0.5, Some(2.0), Some(0.75)));
        assert_eq!(acme.refused_by_criticality, [("critical".to_owned(), Some(0.75))]);
        assert_eq!((result.backends_cpus, result.requests_cpus, result.failed), (0.5, 0.5, 1));
        assert!(acme.cut.as_ref().is_some_and(|cut| cut.admitted == 0.3));
        assert_eq!((result.customers[1].refused, result.customers[1].offered), (None, None));
    }

    #[test]
    fn loss_of_the_server_is_measured_from_its_beginning() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut phase = Phase::begin(Stage::ServerLost, start, Duration::from_secs(8), 0.0, Some(state(0.3)));
        assert_eq!((phase.next_border(start), phase.outage_end()), (at(2), at(2)));
        phase.note(at(1), 0.0, &records(&[Fate::Useful]), None);
        assert!(!phase.is_settling() && phase.is_server_lost());
        assert!(phase.result(&[]).customers[0].cut.is_some(), "the last cut stays in force");
        phase.note(at(3), 0.0, &records(&[Fate::Shed]), Some(state(0.3)));
        assert!(!phase.is_server_lost());
        assert_eq!(phase.result(&[]).customers[0].refused, Some(0.5));
    }
}
