//! Messages of the stream to those of the core, and back. A value that makes no sense is an error that names
//! the field.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::Criticality;
use plimsoll_core::quota::{self, CustomerId, Cut, FleetUse};
use plimsoll_core::quota::{MAX_LIMITS, UNLIMITED};
use thiserror::Error;

use crate::message;
use crate::name::Kind;

const LEVELS: usize = Criticality::ALL.len();
/// The longest name of a customer, a service or a task, in bytes.
const MAX_NAME: usize = 256;
/// The largest demand of a customer at a task, in µCPU: a million CPUs.
const MAX_DEMAND: u64 = 1 << 40;
/// The same of all tasks: four criticalities have a sum.
const MAX_FLEET: u64 = 1 << 60;

/// Tasks of a service.
const MAX_TASKS: u32 = 100_000;
/// Leases that a task takes.
const MIN_LEASE_MS: u32 = 1_000;
const MAX_LEASE_MS: u32 = 2 * 3_600_000;

/// The reason why a message is refused. The stream ends.
#[derive(Clone, Debug, PartialEq, Error)]
pub(crate) enum Invalid {
    #[error("{field}: {reason}")]
    Field { field: &'static str, reason: String },
    #[error("epoch: {got} is not that of this owner, {expected}")]
    Epoch { expected: u64, got: u64 },
}

fn field(field: &'static str, reason: impl Into<String>) -> Invalid {
    Invalid::Field { field, reason: reason.into() }
}

/// A name as a message has it.
fn check_name(of: &'static str, name: &[u8], may_be_empty: bool) -> Result<(), Invalid> {
    if name.is_empty() && !may_be_empty {
        return Err(field(of, "is empty"));
    }
    if name.len() > MAX_NAME {
        return Err(field(of, format!("has {} bytes, and {MAX_NAME} are the most", name.len())));
    }
    Ok(())
}

/// A name in a report.
pub(crate) fn check_report_name(kind: Kind, name: &[u8]) -> Result<(), Invalid> {
    match kind {
        Kind::Customer => check_name("report.entries.name", name, true),
        Kind::Group => check_name("report.groups.name", name, false),
    }
}

/// The first message of a task.
pub(crate) fn check_hello(hello: &message::Hello) -> Result<(), Invalid> {
    check_name("hello.service", hello.service.as_bytes(), false)?;
    check_name("hello.instance", hello.instance.as_bytes(), false)?;
    if !(hello.cpus > 0.0 && hello.cpus.is_finite()) {
        return Err(field("hello.cpus", format!("{} is not a number of CPUs", hello.cpus)));
    }
    if hello.tasks.is_some_and(|tasks| tasks > MAX_TASKS) {
        let tasks = hello.tasks.unwrap_or_default();
        return Err(field("hello.tasks", format!("{tasks} tasks, and {MAX_TASKS} are the most")));
    }
    let (count, most) = (hello.holds.len() + hello.groups.len(), quota::Holder::MAX_CUSTOMERS);
    if count > most {
        return Err(field("hello.holds", format!("{count} customers and groups, and {most} are the most")));
    }
    hello.holds.iter().try_for_each(|hold| check_name("hello.holds.name", &hold.name, true))?;
    hello.groups.iter().try_for_each(|hold| check_name("hello.groups.name", &hold.name, false))
}

/// An entry of a report, by the task's number of the customer.
pub(crate) fn report_entry(entry: &message::ReportEntry) -> Result<quota::ReportEntry, Invalid> {
    let demand = by_criticality("report.entries.demand", &entry.demand)?;
    if let Some(most) = demand.iter().find(|demand| **demand > MAX_DEMAND) {
        return Err(field("report.entries.demand", format!("{most} µCPU is more than {MAX_DEMAND}")));
    }
    let &message::ReportEntry { id, cost, lacking, unused, used, .. } = entry;
    let customer = CustomerId(id);
    Ok(quota::ReportEntry { customer, demand, cost, lacking, unused, used: used.min(MAX_DEMAND) })
}

/// Numbers by criticality.
fn by_criticality(of: &'static str, numbers: &[u64]) -> Result<[u64; LEVELS], Invalid> {
    numbers.try_into().map_err(|_| {
        field(of, format!("{} numbers where one for each of {LEVELS} criticalities is due", numbers.len()))
    })
}

/// An assignment of the core, of which `id` knows the task's numbers. A customer that the task has dropped is
/// left out.
pub(crate) fn assignment(
    epoch: u64,
    assignment: &quota::Assignment,
    id: impl Fn(CustomerId) -> Option<u32>,
) -> message::Assignment {
    let quota::Assignment { number, answers, lease, tasks, overloaded, is_overdue, entries } = assignment;
    let entry = |entry: &quota::AssignmentEntry| {
        let &quota::AssignmentEntry { customer, limit, rate, credit, cut, fleet } = entry;
        let cut = (cut != Cut::NONE).then_some(message::Cut { rank: cut.rank as u32, part: cut.part });
        let fleet = fleet.map(|FleetUse { demand, used }| message::FleetUse { demand: demand.to_vec(), used });
        Some(message::AssignmentEntry { id: id(customer)?, limit, rate, credit, cut, fleet })
    };
    message::Assignment {
        epoch,
        number: *number,
        answers: *answers,
        lease_ms: lease.as_millis().try_into().unwrap_or(u32::MAX),
        tasks: *tasks,
        overloaded: overloaded.map(rank_of),
        overdue: *is_overdue,
        entries: entries.iter().filter_map(entry).collect(),
    }
}

/// The limits for the core of a task, by the key of each name.
pub(crate) fn to_limits(limits: &message::Limits, key: impl Fn(&[u8]) -> u64) -> Result<quota::Limits, Invalid> {
    let message::Limits { tasks, others, named, groups, .. } = limits;
    if *tasks == 0 {
        return Err(field("limits.tasks", "is 0, and this task is one"));
    }
    let count = named.len() + groups.len();
    if count > MAX_LIMITS {
        return Err(field("limits.named", format!("{count} limits, and {MAX_LIMITS} are the most")));
    }
    let limit = |of: &message::Limit| {
        if of.limit > UNLIMITED {
            return Err(field("limits.limit", format!("{} µCPU is more than {UNLIMITED}", of.limit)));
        }
        if let Some(soft) = of.soft.filter(|soft| *soft > UNLIMITED) {
            return Err(field("limits.soft", format!("{soft} µCPU is more than {UNLIMITED}")));
        }
        let group = of.group.as_ref().map(|group| key(group));
        Ok(quota::Limit { limit: of.limit, soft: of.soft, is_dry_run: of.dry_run, group })
    };
    let groups = to_groups(groups, &key, &limit)?;
    let limit = |of: &message::Limit| match limit(of)? {
        quota::Limit { group: Some(group), .. } if !groups.contains_key(&group) => {
            Err(field("limits.group", "is not among the groups"))
        }
        limit => Ok(limit),
    };
    let named = named.iter().map(|of| {
        check_name("limits.named.name", &of.name, true)?;
        Ok((key(&of.name), limit(of)?))
    });
    let (named, others) = (named.collect::<Result<_, Invalid>>()?, others.as_ref().map(limit).transpose()?);
    Ok(quota::Limits { named, others, groups })
}

/// The groups, by the key of each name.
fn to_groups(
    groups: &[message::Limit],
    key: &impl Fn(&[u8]) -> u64,
    limit: &impl Fn(&message::Limit) -> Result<quota::Limit, Invalid>,
) -> Result<BTreeMap<u64, quota::Group>, Invalid> {
    let mut all = BTreeMap::new();
    for of in groups {
        check_name("limits.groups.name", &of.name, false)?;
        if of.group.is_some() {
            return Err(field("limits.groups.group", "is set, and a group is in no other"));
        }
        let group = quota::Group { name: of.name.as_slice().into(), limit: limit(of)? };
        if all.insert(key(&of.name), group).is_some() {
            return Err(field("limits.groups.name", format!("{} is there twice", of.name.escape_ascii())));
        }
    }
    Ok(all)
}

/// The criticality of this rank.
pub(crate) fn criticality(of: &'static str, rank: u32) -> Result<Criticality, Invalid> {
    let known = Criticality::ALL.into_iter().find(|criticality| rank_of(*criticality) == rank);
    known.ok_or_else(|| field(of, format!("{rank} is no criticality")))
}

/// The rank of a criticality: 0 is the most critical.
pub(crate) fn rank_of(criticality: Criticality) -> u32 {
    criticality.rank() as u32
}

/// An assignment for the core of a task.
pub(crate) fn to_assignment(assignment: &message::Assignment) -> Result<quota::Assignment, Invalid> {
    let message::Assignment { number, answers, lease_ms, tasks, overloaded, overdue, entries, .. } = assignment;
    let entry = |entry: &message::AssignmentEntry| {
        let &message::AssignmentEntry { id, limit, rate, credit, ref cut, ref fleet } = entry;
        let cut = match cut {
            None => Cut::NONE,
            Some(message::Cut { rank, part }) => {
                let rank = usize::try_from(*rank).ok().filter(|rank| *rank < LEVELS);
                let rank = rank.ok_or_else(|| field("assignment.entries.cut.rank", "is no criticality"))?;
                if !(0.0..=1.0).contains(part) {
                    return Err(field("assignment.entries.cut.part", format!("{part} is not from 0 to 1")));
                }
                Cut { rank, part: *part }
            }
        };
        if limit > UNLIMITED {
            return Err(field("assignment.entries.limit", format!("{limit} µCPU is more than {UNLIMITED}")));
        }
        // A limit that has just been lowered may be below the rate for a moment, and nothing is beyond ten times.
        let most = limit.saturating_mul(10);
        for (of, number) in [("assignment.entries.rate", rate), ("assignment.entries.credit", credit)] {
            if u64::from(number) > most && limit > 0 {
                return Err(field(of, format!("{number} is more than a limit of {limit} allows")));
            }
        }
        let fleet = fleet.as_ref().map(|message::FleetUse { demand, used }| {
            let demand = by_criticality("assignment.entries.fleet.demand", demand)?;
            Ok(FleetUse { demand: demand.map(|demand| demand.min(MAX_FLEET)), used: (*used).min(MAX_FLEET) })
        });
        let fleet = fleet.transpose()?;
        Ok(quota::AssignmentEntry { customer: CustomerId(id), limit, rate, credit, cut, fleet })
    };
    if !(MIN_LEASE_MS..=MAX_LEASE_MS).contains(lease_ms) {
        return Err(field("assignment.lease_ms", format!("{lease_ms} ms is not from 1 s to 2 h")));
    }
    if *tasks == 0 {
        return Err(field("assignment.tasks", "is 0, and this task is one"));
    }
    Ok(quota::Assignment {
        number: *number,
        answers: *answers,
        lease: Duration::from_millis(u64::from(*lease_ms)),
        tasks: *tasks,
        overloaded: overloaded.map(|rank| criticality("assignment.overloaded", rank)).transpose()?,
        is_overdue: *overdue,
        entries: entries.iter().map(entry).collect::<Result<_, _>>()?,
    })
}

/// The first message of a task to its owner.
pub(crate) fn hello(
    service: &str,
    instance: &str,
    speed: f64,
    epoch: u64,
    hello: quota::Introduced<quota::Hello>,
) -> message::Hello {
    let quota::Introduced { message: quota::Hello { cpus, tasks, holds }, names, groups } = hello;
    // All are in the same order.
    let holds = holds.iter().zip(names);
    let holds = holds.map(|(hold, quota::Introduction { customer, name })| message::Hold {
        id: customer.0,
        name: name.into_vec(),
        rate: hold.rate,
    });
    let (groups, holds) = split(holds, groups, |hold| hold.id);
    let (service, instance) = (service.to_owned(), instance.to_owned());
    message::Hello { service, instance, cpus, speed, tasks, epoch, holds, groups }
}

/// A report of a task.
pub(crate) fn report(epoch: u64, report: quota::Introduced<quota::Report>) -> message::Report {
    let quota::Introduced { message, names, groups } = report;
    let quota::Report { number, acknowledged, entries, dropped, overloaded } = message;
    // All are in the same order.
    let mut names = names.into_iter().peekable();
    let entry = |entry: quota::ReportEntry| {
        let quota::ReportEntry { customer, demand, cost, lacking, unused, used } = entry;
        let name = names.next_if(|new| new.customer == customer).map(|new| new.name.into_vec());
        message::ReportEntry { id: customer.0, name, demand: demand.to_vec(), cost, lacking, used, unused }
    };
    let (groups, entries) = split(entries.into_iter().map(entry), groups, |entry| entry.id);
    message::Report {
        epoch,
        number,
        acknowledged,
        entries,
        groups,
        dropped: dropped.into_iter().map(|customer| customer.0).collect(),
        overloaded: overloaded.map(rank_of),
    }
}

/// Those with the numbers of groups, which are in the same order, and the others.
fn split<T>(all: impl Iterator<Item = T>, groups: Vec<CustomerId>, id: impl Fn(&T) -> u32) -> (Vec<T>, Vec<T>) {
    let mut groups = groups.into_iter().peekable();
    all.partition(|of| groups.next_if_eq(&CustomerId(id(of))).is_some())
}
