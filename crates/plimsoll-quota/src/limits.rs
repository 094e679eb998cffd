//! The limits of a service: those of the file, and changes by an operator that end by themselves.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::Timestamp;
use plimsoll_core::quota::UNLIMITED;
use plimsoll_tls_config::ClientName;

use crate::config::{CustomerConfig, ServiceConfig, Unit};
use crate::message::{Limit, Limits};

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
    Override(Box<[u8]>, Option<Override>),
    /// The end of limits by operators whose time is over.
    Expiry(Timestamp),
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct ServiceLimits {
    config: ServiceConfig,
    overrides: BTreeMap<Box<[u8]>, Override>,
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

    /// Takes limits and changes of another one, and keeps the lease.
    pub(crate) fn follow(&mut self, other: &Self) {
        let lease = self.config.lease;
        *self = Self { config: ServiceConfig { lease, ..other.config.clone() }, overrides: other.overrides.clone() };
    }

    /// Names in certificates of tasks: a right that is taken ends at once.
    pub(crate) fn set_reporters(&mut self, reporters: Vec<ClientName>) {
        self.config.reporters = reporters;
    }

    pub(crate) fn config(&self) -> &ServiceConfig {
        &self.config
    }

    pub(crate) fn override_of(&self, name: &[u8]) -> Option<Override> {
        self.overrides.get(name).copied()
    }

    /// Whether the name has a limit of its own.
    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        self.overrides.contains_key(name) || self.of_file(name).is_some()
    }

    /// The names of limits by operators.
    pub(crate) fn overridden(&self) -> impl Iterator<Item = &[u8]> {
        self.overrides.keys().map(|name| &**name)
    }

    /// Whether these are the same limits for tasks.
    pub(crate) fn is_same_for_tasks(&self, other: &Self) -> bool {
        self.message(0, 0) == other.message(0, 0)
    }

    /// The limit of a customer, in µCPU; `None`: no limit.
    pub(crate) fn of(&self, name: &[u8]) -> Option<u64> {
        let by_operator = self.overrides.get(name).map(|to| to.limit);
        by_operator.or_else(|| self.of_file(name)).or_else(|| self.others())
    }

    /// The same as a number for the owner.
    pub(crate) fn at_owner(&self, name: &[u8]) -> u64 {
        self.of(name).unwrap_or(UNLIMITED)
    }

    /// Whether refusals of a customer are only counted.
    pub(crate) fn is_dry_run(&self, name: &[u8]) -> bool {
        self.config.dry_run || self.table_of(name).is_some_and(|own| own.dry_run)
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
    pub(crate) fn names(&self) -> BTreeSet<Vec<u8>> {
        let of_file = self.config.customers.keys().map(|name| name.clone().into_bytes());
        of_file.chain(self.overrides.keys().map(|name| name.to_vec())).collect()
    }

    /// All limits, for tasks.
    pub(crate) fn message(&self, epoch: u64, tasks: u32) -> Limits {
        let limit = |name: Vec<u8>| Limit {
            limit: self.at_owner(&name),
            soft: self.soft(&name),
            dry_run: self.is_dry_run(&name),
            name,
        };
        let named = self.names().into_iter().map(limit);
        let (limit, soft) = (self.others().unwrap_or(UNLIMITED), self.soft_of_others());
        let others = Limit { name: Vec::new(), limit, soft, dry_run: self.config.dry_run };
        let others = (limit < UNLIMITED || soft.is_some()).then_some(others);
        Limits { epoch, tasks, others, named: named.collect() }
    }

    /// The soft limit of a customer, in µCPU: the hard one if it has no other.
    pub(crate) fn soft(&self, name: &[u8]) -> Option<u64> {
        let hard = self.of(name).filter(|limit| *limit < UNLIMITED);
        match self.table_of(name) {
            Some(own) => own.soft_limit.map(|limit| units(self.config.unit, limit)).or(hard),
            None if self.overrides.contains_key(name) => hard,
            None => self.soft_of_others(),
        }
    }

    /// That of each customer without a table.
    fn soft_of_others(&self) -> Option<u64> {
        self.config.other_customers.soft_limit.map(|limit| units(self.config.unit, limit)).or_else(|| self.others())
    }

    /// The limit of a customer's own table; `None` without one.
    fn of_file(&self, name: &[u8]) -> Option<u64> {
        let own = self.table_of(name)?;
        Some(own.hard_limit.map_or(UNLIMITED, |limit| units(self.config.unit, limit)))
    }

    fn table_of(&self, name: &[u8]) -> Option<&CustomerConfig> {
        self.config.customers.get(std::str::from_utf8(name).ok()?)
    }

    fn others(&self) -> Option<u64> {
        self.config.other_customers.hard_limit.map(|limit| units(self.config.unit, limit))
    }
}

/// A limit in rate units.
pub(crate) fn units(unit: Unit, limit: f64) -> u64 {
    ((limit * unit.scale()).round() as u64).min(UNLIMITED)
}
