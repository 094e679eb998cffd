//! The limits of a service: those of the file, and changes by an operator that end by themselves.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::Timestamp;
use plimsoll_core::quota::UNLIMITED;
use plimsoll_tls_config::ClientName;

use crate::config::{ServiceConfig, Unit};
use crate::message::{Limit, Limits};
use crate::name::{Kind, Name};

/// A limit by an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Override {
    /// In µCPU.
    pub(crate) limit: u64,
    pub(crate) until: Timestamp,
}

/// A change of the limits of a service.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Other settings of the file.
    Config(Box<ServiceConfig>),
    /// A limit by an operator, or its end.
    Override(Name, Option<Override>),
    /// The end of limits by operators whose time is over.
    Expiry(Timestamp),
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct ServiceLimits {
    config: ServiceConfig,
    overrides: BTreeMap<Name, Override>,
}

impl ServiceLimits {
    pub(crate) fn new(config: ServiceConfig) -> Self {
        Self { config, overrides: BTreeMap::new() }
    }

    pub(crate) fn change(&mut self, change: Change) {
        match change {
            Change::Config(config) => self.config = *config,
            Change::Override(name, Some(to)) => drop(self.overrides.insert(name, to)),
            Change::Override(name, None) => drop(self.overrides.remove(&name)),
            Change::Expiry(now) => self.overrides.retain(|_, to| to.until > now),
        }
    }

    /// Takes limits and changes of customers of another one, and keeps the lease.
    pub(crate) fn follow(&mut self, other: &Self) {
        let lease = self.config.lease;
        let of_customers = other.overrides.iter().filter(|(name, _)| name.kind == Kind::Customer);
        let overrides = of_customers.map(|(name, to)| (name.clone(), *to)).collect();
        *self = Self { config: ServiceConfig { lease, ..other.config.without_groups() }, overrides };
    }

    /// Names in certificates of tasks: a right that is taken ends at once.
    pub(crate) fn set_reporters(&mut self, reporters: Vec<ClientName>) {
        self.config.reporters = reporters;
    }

    pub(crate) fn config(&self) -> &ServiceConfig {
        &self.config
    }

    pub(crate) fn override_of(&self, name: &Name) -> Option<Override> {
        self.overrides.get(name).copied()
    }

    /// Whether the name has a limit of its own.
    pub(crate) fn is_named(&self, name: &Name) -> bool {
        self.overrides.contains_key(name) || self.of_file(name).is_some()
    }

    /// Limits by operators.
    pub(crate) fn overrides(&self) -> &BTreeMap<Name, Override> {
        &self.overrides
    }

    /// The names of limits by operators.
    pub(crate) fn overridden(&self) -> impl Iterator<Item = &Name> {
        self.overrides.keys()
    }

    /// Whether these are the same limits for tasks.
    pub(crate) fn is_same_for_tasks(&self, other: &Self) -> bool {
        self.message(0, 0) == other.message(0, 0)
    }

    /// The limit of a customer or a group, in µCPU; `None`: no limit.
    pub(crate) fn of(&self, name: &Name) -> Option<u64> {
        let by_operator = self.overrides.get(name).map(|to| to.limit);
        let others = || self.others().filter(|_| name.kind == Kind::Customer);
        by_operator.or_else(|| self.of_file(name)).or_else(others)
    }

    /// The same of each customer or group without a limit of its own, as a number for the owner.
    pub(crate) fn of_strangers(&self, kind: Kind) -> u64 {
        self.others().filter(|_| kind == Kind::Customer).unwrap_or(UNLIMITED)
    }

    /// The group of a customer.
    pub(crate) fn group_of(&self, name: &Name) -> Option<&str> {
        if name.kind == Kind::Group {
            return None;
        }
        let own = name.text().and_then(|name| self.config.customers.get(name));
        own.map_or(self.config.other_customers.group.as_deref(), |own| own.group.as_deref())
    }

    /// The same as a number for the owner.
    pub(crate) fn at_owner(&self, name: &Name) -> u64 {
        self.of(name).unwrap_or(UNLIMITED)
    }

    /// Whether refusals of a customer or a group are only counted.
    pub(crate) fn is_dry_run(&self, name: &Name) -> bool {
        self.config.dry_run || self.own(name).is_some_and(|(_, dry_run)| dry_run)
    }

    /// Limits by operators whose time is over last until then: the limits after them were refused.
    pub(crate) fn extend_overrides(&mut self, now: Timestamp, until: Timestamp) {
        self.overrides.values_mut().filter(|to| to.until <= now).for_each(|to| to.until = until);
    }

    /// The end of the first change to end.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.overrides.values().map(|to| to.until).min()
    }

    /// The names with a limit of their own.
    pub(crate) fn names(&self) -> BTreeSet<Name> {
        let customers = self.config.customers.keys().map(|name| Name::new(Kind::Customer, name.as_bytes()));
        let groups = self.config.groups.keys().map(|name| Name::new(Kind::Group, name.as_bytes()));
        customers.chain(groups).chain(self.overrides.keys().cloned()).collect()
    }

    /// All limits, for tasks.
    pub(crate) fn message(&self, epoch: u64, tasks: u32) -> Limits {
        let group = |name: Option<&str>| name.map(|name| name.as_bytes().to_vec());
        let limit = |name: &Name| Limit {
            limit: self.at_owner(name),
            soft: self.soft(name),
            dry_run: self.is_dry_run(name),
            name: name.bytes.to_vec(),
            group: group(self.group_of(name)),
        };
        let names = self.names();
        let all = |kind| names.iter().filter(move |name| name.kind == kind).map(limit).collect();
        let other = &self.config.other_customers;
        let (limit_of_others, soft) = (self.others().unwrap_or(UNLIMITED), self.soft_of_others());
        let others = Limit {
            name: Vec::new(),
            limit: limit_of_others,
            soft,
            dry_run: self.config.dry_run,
            group: group(other.group.as_deref()),
        };
        // Without a limit of their own they may have that of their group.
        let is_limited = limit_of_others < UNLIMITED || soft.is_some() || other.group.is_some();
        let others = is_limited.then_some(others);
        Limits { epoch, tasks, others, named: all(Kind::Customer), groups: all(Kind::Group) }
    }

    /// The soft limit of a customer, in µCPU: the hard one if it has no other.
    pub(crate) fn soft(&self, name: &Name) -> Option<u64> {
        if name.kind == Kind::Group {
            return None;
        }
        // A dry run changes nothing.
        let hard = self.of(name).filter(|limit| *limit < UNLIMITED && !self.is_dry_run(name));
        match name.text().and_then(|text| self.config.customers.get(text)) {
            Some(own) => own.soft_limit.map(|limit| units(self.config.unit, limit)).or(hard),
            None if self.overrides.contains_key(name) => hard,
            None => self.soft_of_others(),
        }
    }

    /// That of each customer without a table.
    fn soft_of_others(&self) -> Option<u64> {
        self.config
            .other_customers
            .soft_limit
            .map(|limit| units(self.config.unit, limit))
            .or_else(|| self.others().filter(|_| !self.config.dry_run))
    }

    /// The limit of the own table of a customer or a group; `None` without one.
    fn of_file(&self, name: &Name) -> Option<u64> {
        let (hard_limit, _) = self.own(name)?;
        Some(hard_limit.map_or(UNLIMITED, |limit| units(self.config.unit, limit)))
    }

    /// Limit and dry run in the own table of a customer or a group.
    fn own(&self, name: &Name) -> Option<(Option<f64>, bool)> {
        let text = name.text()?;
        match name.kind {
            Kind::Customer => self.config.customers.get(text).map(|own| (own.hard_limit, own.dry_run)),
            Kind::Group => self.config.groups.get(text).map(|own| (own.hard_limit, own.dry_run)),
        }
    }

    fn others(&self) -> Option<u64> {
        self.config.other_customers.hard_limit.map(|limit| units(self.config.unit, limit))
    }
}

/// A limit in rate units.
pub(crate) fn units(unit: Unit, limit: f64) -> u64 {
    ((limit * unit.scale()).round() as u64).min(UNLIMITED)
}
