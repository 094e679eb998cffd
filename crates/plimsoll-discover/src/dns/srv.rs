//! The targets of a service.
//!
//! ```text
//! records of the lowest priority number with an address, each with weight and targets
//! weight of an address = weight of its record · scale / number of the target's addresses
//! scale = 1, or 1000 / largest weight if one is above 1000; a weight of 0 is the smallest
//! ```
//!
//! Weights stay as they are, so that a service of Consul (all 1) stands beside a fixed backend (1) as
//! an equal. They change in place.
//!
//! A target without records in the answer is looked up, 16 at once. A target that cannot be looked up
//! keeps its addresses. A new one is left out, with a warning: one wrong record of fifty must not keep
//! a service from starting. If no target of the priority has an address and one failed, the answer is
//! an error: a failure moves no requests to the next priority.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use hickory_proto::rr::rdata::SRV;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use plimsoll::discover::Endpoint;
use plimsoll_core::Weight;

use super::answer::Records;
use super::host::{Addresses, Families, addresses, parse_name};
use super::schedule::Question;
use super::search::{candidates, records};
use super::servers::Ask;
use super::system::Local;
use super::{Failure, Found, MAX_ADDRESSES, NameError};

/// Targets that are looked up at once.
const MAX_LOOKUPS: usize = 16;

/// A name with SRV records.
#[derive(Debug)]
pub(super) struct Service {
    text: String,
    name: Name,
    /// The targets of the last two answers.
    known: BTreeMap<Name, Known>,
    /// The number of the present answer.
    answer: u64,
}

/// A target.
#[derive(Clone, Debug, Default)]
struct Known {
    families: Families,
    /// The number of the last answer that it was in.
    answer: u64,
    /// It was left out, and a warning said so.
    is_left_out: bool,
}

impl Service {
    pub(super) fn parse(text: &str) -> Result<Self, NameError> {
        let expected = "name of a service, such as _http._tcp.web.service.consul";
        let name = parse_name(text).ok_or_else(|| NameError { name: text.to_owned(), expected })?;
        Ok(Self { text: text.to_owned(), name, known: BTreeMap::new(), answer: 0 })
    }

    /// The addresses of the targets of one priority, in the order of `group`.
    async fn targets(
        &mut self,
        ask: &impl Ask,
        local: &Local,
        group: &[SRV],
        additional: &[Record],
    ) -> Vec<Result<Addresses, Failure>> {
        let names: BTreeSet<&Name> = group.iter().map(|record| &record.target).collect();
        let known = names.iter().map(|name| ((*name).clone(), self.known.remove(*name).unwrap_or_default()));
        let look_up = |(name, mut known): (Name, Known)| async move {
            let found = look_up(ask, local, &name, additional, &mut known.families).await;
            (name, known, found)
        };
        let all: Vec<_> = stream::iter(known.collect::<Vec<_>>()).map(look_up).buffered(MAX_LOOKUPS).collect().await;
        let mut found = BTreeMap::new();
        for (name, mut known, answer) in all {
            known.answer = self.answer;
            let answer = answer.or_else(|failure| known.kept().ok_or(failure));
            found.insert(name.clone(), answer);
            self.known.insert(name, known);
        }
        group.iter().map(|record| found[&record.target].clone()).collect()
    }

    /// Warns of targets without an address that cannot be looked up, each once.
    fn warn(&mut self, group: &[SRV], targets: &[Result<Addresses, Failure>]) {
        for (record, target) in group.iter().zip(targets) {
            let known = self.known.entry(record.target.clone()).or_default();
            let was_left_out = std::mem::replace(&mut known.is_left_out, target.is_err());
            if let (Err(error), false) = (target, was_left_out) {
                let (name, target) = (&*self.text, record.target.to_ascii());
                tracing::warn!(name, target, %error, "SRV target left out: it cannot be looked up");
            }
        }
    }
}

impl Known {
    /// The addresses by earlier answers.
    fn kept(&self) -> Option<Addresses> {
        let Families { v4, v6 } = &self.families;
        let kept: BTreeSet<IpAddr> = v4.iter().chain(v6).flatten().copied().collect();
        (!kept.is_empty()).then_some((kept, super::answer::MAX_EMPTY_TTL))
    }
}

impl Question for Service {
    fn name(&self) -> &str {
        &self.text
    }

    async fn ask(&mut self, ask: &impl Ask) -> Result<Found, Failure> {
        let local = ask.local().await?;
        let Records { data, mut ttl, additional, .. } = search(ask, &local, &self.name).await?;
        let mut groups: BTreeMap<u16, Vec<SRV>> = BTreeMap::new();
        for record in data {
            // The root as the target: the service is decidedly not available here.
            if let RData::SRV(record) = record
                && !record.target.is_root()
                && record.port > 0
            {
                groups.entry(record.priority).or_default().push(record);
            }
        }
        let mut endpoints = Vec::new();
        for group in groups.values() {
            let targets = self.targets(ask, &local, group, &additional).await;
            let is_empty = targets.iter().flatten().all(|(addresses, _)| addresses.is_empty());
            if is_empty {
                let failed =
                    group.iter().zip(&targets).find_map(|(record, target)| Some((record, target.as_ref().err()?)));
                if let Some((record, cause)) = failed {
                    return Err(Failure::Target { target: record.target.clone(), cause: Box::new(cause.clone()) });
                }
                continue;
            }
            self.warn(group, &targets);
            ttl = targets.iter().flatten().map(|(_, ttl)| *ttl).fold(ttl, Duration::min);
            endpoints = weighted(group, &targets);
            break;
        }
        if endpoints.len() > MAX_ADDRESSES {
            return Err(Failure::TooMany);
        }
        self.known.retain(|_, known| known.answer + 1 >= self.answer);
        self.answer += 1;
        Ok(Found { endpoints, ttl: Some(ttl) })
    }
}

/// The records at the first name of the search list that has some.
async fn search(ask: &impl Ask, local: &Local, name: &Name) -> Result<Records, Failure> {
    let candidates = candidates(name, local);
    let (last, others) = candidates.split_last().expect("the name itself is one");
    for candidate in others {
        let found = records(ask, local, candidate, RecordType::SRV).await?;
        if !found.data.is_empty() {
            return Ok(found);
        }
    }
    records(ask, local, last, RecordType::SRV).await
}

/// The addresses of a target: those that came with the answer, or those of its own look-up.
async fn look_up(
    ask: &impl Ask,
    local: &Local,
    target: &Name,
    additional: &[Record],
    known: &mut Families,
) -> Result<Addresses, Failure> {
    let is_of_target = |record: &&Record| record.dns_class == DNSClass::IN && record.name == *target;
    let given = additional.iter().filter(is_of_target);
    let given: Vec<_> = given.filter_map(|record| Some((record.data.ip_addr()?, record.ttl))).collect();
    let Some(ttl) = given.iter().map(|(_, ttl)| *ttl).min() else {
        return addresses(ask, local, target, known).await;
    };
    *known = Families::of(given.iter().map(|(address, _)| *address));
    Ok((given.into_iter().map(|(address, _)| address).collect(), Duration::from_secs(ttl.into())))
}

/// The endpoints of a priority, sorted by address. Records for the same address add up.
fn weighted(group: &[SRV], targets: &[Result<Addresses, Failure>]) -> Vec<Endpoint> {
    let heaviest = group.iter().map(|record| record.weight).max().unwrap_or_default();
    let (min, max) = (*Weight::RANGE.start(), *Weight::RANGE.end());
    let scale = (max / f64::from(heaviest.max(1))).min(1.0);
    let mut found: BTreeMap<SocketAddr, (f64, &SRV)> = BTreeMap::new();
    for (record, target) in group.iter().zip(targets) {
        let Ok((addresses, _)) = target else { continue };
        // Weights that are all zero mean the same for all.
        let weight = if heaviest == 0 { 1.0 } else { f64::from(record.weight) * scale };
        for address in addresses {
            let share = weight / addresses.len() as f64;
            let address = SocketAddr::new(*address, record.port);
            found.entry(address).and_modify(|(sum, _)| *sum += share).or_insert((share, record));
        }
    }
    let endpoint = |(address, (weight, record)): (SocketAddr, (f64, &SRV))| {
        let target = record.target.to_ascii();
        let mut endpoint = Endpoint::new(address);
        endpoint.authority = format!("{}:{}", target.trim_end_matches('.'), record.port).parse().ok();
        endpoint.weight(Weight::new(weight.clamp(min, max)).unwrap_or_default())
    };
    found.into_iter().map(endpoint).collect()
}
