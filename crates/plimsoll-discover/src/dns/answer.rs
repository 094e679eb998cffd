//! The meaning of a DNS message.
//!
//! ```text
//! NOERROR with records            records; TTL = min over the aliases and the records
//! NOERROR with an alias, no SOA   another question: the server did not follow the alias
//! NOERROR otherwise, NXDOMAIN     no records; TTL = min(SOA's TTL, SOA's minimum, 5 s)
//! anything else, truncated        an error
//! ```
//!
//! Aliases may stand behind the records, and records of other names beside them: only the chain from
//! the name that was asked counts.

use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::Failure;

/// Longest chain of aliases.
pub(super) const MAX_ALIASES: usize = 16;
/// Longest time to the next question after an answer without records. Its cluster may have no
/// backend, and the server caches the absence anyway.
pub(super) const MAX_EMPTY_TTL: Duration = Duration::from_secs(5);

/// The records of a name, of one type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Records {
    pub(super) data: Vec<RData>,
    pub(super) ttl: Duration,
    /// The name does not exist, not even with other records.
    pub(super) is_unknown: bool,
    /// Records that the server thinks are needed next.
    pub(super) additional: Vec<Record>,
}

/// A message, read.
#[derive(Debug, PartialEq)]
pub(super) enum Reading {
    Records(Records),
    /// The name is an alias of another one, about which the message says nothing.
    Alias(Name, Duration),
}

/// Reads the answer about `name` to a question for `kind`.
pub(super) fn read(message: Message, name: &Name, kind: RecordType) -> Result<Reading, Failure> {
    if message.metadata.truncation {
        return Err(Failure::Truncated);
    }
    let code = message.metadata.response_code;
    if !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return Err(Failure::Code(code));
    }
    let answers = message.answers.iter().filter(|record| record.dns_class == DNSClass::IN);
    let (mut last, mut ttl) = (name, u32::MAX);
    for step in 0.. {
        if step > MAX_ALIASES {
            return Err(Failure::Aliases(MAX_ALIASES));
        }
        let alias = answers.clone().find_map(|record| match &record.data {
            RData::CNAME(alias) if record.name == *last => Some((&alias.0, record.ttl)),
            _ => None,
        });
        let Some((alias, alias_ttl)) = alias else { break };
        (last, ttl) = (alias, ttl.min(alias_ttl));
    }
    let records = answers.filter(|record| record.name == *last && record.record_type() == kind);
    let (data, ttls): (Vec<_>, Vec<_>) = records.map(|record| (record.data.clone(), record.ttl)).unzip();
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let soa = message.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
        _ => None,
    });
    let is_unknown = code == ResponseCode::NXDomain;
    if data.is_empty() && last != name && soa.is_none() && !is_unknown {
        return Ok(Reading::Alias(last.clone(), seconds(ttl)));
    }
    let ttl = match ttls.into_iter().min() {
        Some(records) => seconds(ttl.min(records)),
        None => soa.map_or(MAX_EMPTY_TTL, seconds).min(MAX_EMPTY_TTL),
    };
    Ok(Reading::Records(Records { data, ttl, is_unknown, additional: message.additionals }))
}
