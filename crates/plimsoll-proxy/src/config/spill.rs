//! The localities of a cluster, nearest first, and how full each gets before requests go on to the
//! next.

use plimsoll::client::Localities;
use plimsoll_config::{Checker, help_for_name};
use plimsoll_core::spill::SpillConfig;

use super::address::Backend;
use super::cluster::Cluster;

impl Cluster {
    /// The localities as the library has them; `None` if all backends are equally near.
    pub(super) fn localities(&self) -> Option<Localities> {
        if self.localities.is_empty() {
            return None;
        }
        let names = self.localities.iter().map(String::as_str);
        Some(Localities::new(names, self.spill).expect("names and target were checked with the file"))
    }

    /// Reports localities that are no order, and backends that are in none of them.
    pub(super) fn check_localities(&self, path: &str, is_name: impl Fn(&str) -> bool, checker: &mut Checker<'_>) {
        for (k, name) in self.localities.iter().enumerate() {
            let at = format!("{path}.localities[{k}]");
            if !is_name(name) {
                let help = "use letters, digits, \"-\", \"_\" and \".\": the name stands in metrics";
                checker.report(at, format!("\"{name}\" is not a name for a locality"), help);
            } else if self.localities[..k].contains(name) {
                checker.report(at, format!("\"{name}\" is in the list twice"), "remove one of them");
            }
        }
        if checker.is_readable(&format!("{path}.localities")) {
            for (k, backend) in self.backends.iter().enumerate() {
                self.check_backend(&format!("{path}.backends[{k}]"), backend, checker);
            }
        }
        let table = format!("{path}.spill");
        if self.localities.is_empty() && self.spill != SpillConfig::default() {
            let help = "add localities = [\"near\", \"far\"] to the cluster, nearest first, or remove it";
            checker.report(table, "has no effect: the cluster has no localities", help);
        } else if self.spill.target.as_f64() <= 0.0 {
            let help = "write a share above 0, such as \"80%\"";
            checker.report(format!("{table}.target"), "no request could be sent", help);
        }
    }

    fn check_backend(&self, path: &str, backend: &Backend, checker: &mut Checker<'_>) {
        let known = || self.localities.iter().map(String::as_str);
        match (&backend.locality, self.localities.first()) {
            (Some(name), Some(_)) if !self.localities.contains(name) => {
                let reason = format!("the cluster has no locality \"{name}\"");
                checker.report(format!("{path}.locality"), reason, help_for_name(name, known()));
            }
            (None, Some(first)) => {
                let help = format!("write {{ address = \"{}\", locality = \"{first}\" }}", backend.address);
                checker.report(path, "is in no locality of the cluster", help);
            }
            (Some(name), None) => {
                let help = format!("add localities = [\"{name}\"] to the cluster, nearest first, or remove it");
                checker.report(format!("{path}.locality"), "has no effect: the cluster has no localities", help);
            }
            _ => {}
        }
    }
}
