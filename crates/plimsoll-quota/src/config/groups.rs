//! Rules over the groups of a service: members, limits, and the unit.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_config::Checker;

use super::{CustomerConfig, GroupConfig, OtherCustomers, ServiceConfig, Unit, at};

impl ServiceConfig {
    /// The same service without groups: Envoys have none.
    pub(crate) fn without_groups(&self) -> Self {
        let mut customers = self.customers.clone();
        customers.values_mut().for_each(|customer: &mut CustomerConfig| customer.group = None);
        let other_customers = OtherCustomers { group: None, ..self.other_customers.clone() };
        Self { groups: BTreeMap::new(), customers, other_customers, ..self.clone() }
    }

    /// Each place where a group is named, and that group.
    fn memberships(&self) -> impl Iterator<Item = (String, &str)> {
        let of_others = self.other_customers.group.iter().map(|group| ("other_customers.group".to_owned(), group));
        let named = self.customers.iter();
        let named = named.filter_map(|(name, of)| Some((format!("customers.{name}.group"), of.group.as_ref()?)));
        of_others.chain(named).map(|(place, group)| (place, group.as_str()))
    }
}

/// Checks the groups of the service at `path`.
pub(super) fn check(path: &str, service: &ServiceConfig, checker: &mut Checker<'_>) {
    let groups = &service.groups;
    if service.unit == Unit::Requests {
        for place in groups.keys().map(|name| format!("groups.{name}")) {
            let help = "remove it: Envoy has a bucket for each customer, and none for several";
            checker.report(at(path, &place), "is a group of a service that counts requests", help);
        }
    }
    for (place, group) in service.memberships().filter(|(_, group)| !groups.contains_key(*group)) {
        let help =
            format!("add [{}] with hard_limit, or name {}", at(path, &format!("groups.{group}")), one_of(groups));
        checker.report(at(path, &place), format!("there is no group \"{group}\" in this service"), help);
    }
    let members: BTreeSet<&str> = service.memberships().map(|(_, group)| group).collect();
    // A name with a typo may be that of a group which seems to have no customers.
    let are_known = ["", "other_"].map(|which| checker.is_readable(&at(path, &format!("{which}customers"))));
    for (name, GroupConfig { hard_limit, .. }) in groups {
        let path_of = at(path, &format!("groups.{name}"));
        if hard_limit.is_none() {
            let help = "add hard_limit, in CPUs over all tasks, such as hard_limit = 10";
            checker.report(&path_of, "is a group without a limit", help);
        }
        if !members.contains(name.as_str()) && are_known == [true, true] {
            let help = format!("write group = \"{name}\" at a customer or at other_customers, or remove the group");
            checker.report(path_of, "is a group without customers", help);
        }
    }
}

fn one_of(groups: &BTreeMap<String, GroupConfig>) -> String {
    if groups.is_empty() {
        return "no group".to_owned();
    }
    let names: Vec<&str> = groups.keys().map(String::as_str).collect();
    format!("one of: {}", names.join(", "))
}
