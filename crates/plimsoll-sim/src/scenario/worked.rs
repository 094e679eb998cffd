//! The settings of worked examples in a scenario file.
//!
//! The meaning of each setting stands beside the code
//! ([`experiment::worked`](crate::experiment::worked)).

use plimsoll_config::{Checker, Table, Visitor};

use super::budget::{MOST_EVENTS, MOST_PARTIES, budget};
use super::fleet_check::names;
use super::{Experiment, Kind, Settings};
use crate::experiment::worked::{Aperture, Plan, Throttle};

/// Most active requests of one backend. The balancer would skip a backend with more.
const MOST_ACTIVE: u32 = 99;

/// The examples, at the root of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WorkedFile(Plan);

impl From<WorkedFile> for Experiment {
    fn from(file: WorkedFile) -> Self {
        Self::Worked(file.0)
    }
}

impl Table for WorkedFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("least_loaded", &mut self.0.least_loaded);
        visitor.tables("throttle", &mut self.0.throttle);
        visitor.tables("aperture", &mut self.0.aperture);
    }
}

impl Table for Throttle {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required("requests", &mut self.requests);
        visitor.required("accepts", &mut self.accepts);
        visitor.value("k", &mut self.k);
    }
}

impl Table for Aperture {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required("clients", &mut self.clients);
        visitor.required("backends", &mut self.backends);
        visitor.value("minimum", &mut self.minimum);
    }
}

impl Settings for WorkedFile {
    const KIND: Kind = Kind::Worked;

    fn check(&mut self, checker: &mut Checker<'_>) {
        let plan = &self.0;
        for (i, active) in plan.least_loaded.iter().enumerate().filter(|(_, active)| **active > MOST_ACTIVE) {
            let reason = format!("{active} is above the limit of active requests per backend");
            checker.report(format!("least_loaded[{i}]"), reason, format!("write at most {MOST_ACTIVE}"));
        }
        names(checker, "throttle", plan.throttle.iter().map(|point| &*point.name));
        for (i, point) in plan.throttle.iter().enumerate() {
            let path = format!("throttle[{i}]");
            if point.accepts > point.requests {
                let reason = format!("{} is more than requests ({})", point.accepts, point.requests);
                checker.report(format!("{path}.accepts"), reason, "write at most as many");
            }
            if point.k < 1.0 {
                let reason = "a client would throttle requests that the backend accepts";
                checker.report(format!("{path}.k"), reason, "write at least 1");
            }
        }
        names(checker, "aperture", plan.aperture.iter().map(|fleet| &*fleet.name));
        for (i, fleet) in plan.aperture.iter().enumerate() {
            let path = |key: &str| format!("aperture[{i}].{key}");
            let [clients, backends, minimum] =
                [fleet.clients, fleet.backends, fleet.minimum].map(|count| f64::from(count.get()));
            budget(checker, path("clients"), "clients", clients, MOST_PARTIES);
            budget(checker, path("backends"), "backends", backends, MOST_PARTIES);
            if clients.max(backends) <= MOST_PARTIES {
                // Each client covers at least its own share, if that is larger.
                let covered = clients * minimum.min(backends).max(backends / clients + 2.0);
                budget(checker, path("minimum"), "arcs of clients over backends", covered, MOST_EVENTS);
            }
        }
    }

    fn metrics(&self) -> Vec<String> {
        self.0.metrics()
    }
}
