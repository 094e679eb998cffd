//! The decisions on a paused clock, with a table in place of the network; and real servers.

mod decisions;
mod names;
mod network;
mod scenario;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, SOA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use plimsoll::discover::Endpoint;

use super::Failure;
use super::host::Host;
use super::schedule::Schedule;
use super::servers::Ask;
use super::srv::Service;
use super::system::Local;

/// What a server says about a name and a type.
#[derive(Clone, Debug)]
enum Reply {
    Records(Vec<(RData, u32)>),
    /// Records of any names, in the answer and beside it.
    Message(Message),
    /// The name exists, with a negative TTL.
    NoData(u32),
    NxDomain,
    Code(ResponseCode),
    Fail(Failure),
    Never,
}

/// A table in place of the network. Names that it lacks do not exist.
#[derive(Clone, Debug, Default)]
struct Table(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    replies: BTreeMap<(Name, RecordType), Reply>,
    asked: Vec<(String, RecordType)>,
    local: Local,
}

impl Table {
    fn set(&self, name: &str, kind: RecordType, reply: Reply) {
        self.0.lock().unwrap().replies.insert((fqdn(name), kind), reply);
    }

    fn v4(&self, name: &str, ttl: u32, last: impl IntoIterator<Item = u8>) {
        self.set(name, RecordType::A, v4(ttl, last));
    }

    fn srv(&self, name: &str, records: &[(u16, u16, &str)]) {
        let records = records.iter().map(|(priority, weight, target)| (srv(*priority, *weight, target), 30));
        self.set(name, RecordType::SRV, Reply::Records(records.collect()));
    }

    fn local(&self, text: &str) {
        self.0.lock().unwrap().local = Local::parse(text);
    }

    fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut self.0.lock().unwrap().asked);
        asked.into_iter().map(|(name, kind)| format!("{name} {kind}")).collect()
    }

    fn host(&self, name: &str) -> Schedule<Host, Self> {
        Schedule::new(Host::parse(name).unwrap(), self.clone())
    }

    fn service(&self, name: &str) -> Schedule<Service, Self> {
        Schedule::new(Service::parse(name).unwrap(), self.clone())
    }
}

impl Ask for Table {
    async fn local(&self) -> Result<Local, Failure> {
        Ok(self.0.lock().unwrap().local.clone())
    }

    async fn ask(&self, _: &Local, name: &Name, kind: RecordType) -> Result<Message, Failure> {
        let reply = {
            let mut state = self.0.lock().unwrap();
            state.asked.push((name.to_ascii(), kind));
            state.replies.get(&(name.clone(), kind)).cloned()
        };
        match reply.unwrap_or(Reply::NxDomain) {
            Reply::Never => std::future::pending().await,
            Reply::Fail(failure) => Err(failure),
            reply => Ok(message(name, reply)),
        }
    }
}

/// The message that says `reply` about `name`.
fn message(name: &Name, reply: Reply) -> Message {
    let mut message = Message::response(1, OpCode::Query);
    match reply {
        Reply::Records(records) => {
            message.add_answers(records.into_iter().map(|(data, ttl)| Record::from_rdata(name.clone(), ttl, data)));
        }
        Reply::Message(given) => return given,
        Reply::NoData(minimum) => {
            let soa = SOA::new(fqdn("ns"), fqdn("admin"), 1, 1, 1, 1, minimum);
            message.add_authority(Record::from_rdata(fqdn("zone"), 3600, RData::SOA(soa)));
        }
        Reply::NxDomain => message.metadata.response_code = ResponseCode::NXDomain,
        Reply::Code(code) => message.metadata.response_code = code,
        Reply::Never | Reply::Fail(_) => unreachable!("no message"),
    }
    message
}

fn fqdn(name: &str) -> Name {
    let mut name = Name::from_ascii(name).unwrap();
    name.set_fqdn(true);
    name
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn v4(ttl: u32, last: impl IntoIterator<Item = u8>) -> Reply {
    Reply::Records(last.into_iter().map(|last| (RData::from(ip(last)), ttl)).collect())
}

fn v6(ttl: u32, last: impl IntoIterator<Item = u16>) -> Reply {
    let address = |last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]);
    Reply::Records(last.into_iter().map(|last| (RData::from(address(last)), ttl)).collect())
}

fn srv(priority: u16, weight: u16, target: &str) -> RData {
    RData::SRV(SRV::new(priority, weight, 8080, fqdn(target)))
}

fn alias(from: &str, to: &str, ttl: u32) -> Record {
    Record::from_rdata(fqdn(from), ttl, RData::CNAME(CNAME(fqdn(to))))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Addresses, or the error.
fn shown(answer: Option<plimsoll::discover::Answer>) -> Result<Vec<String>, String> {
    let list = |endpoints: Vec<Endpoint>| endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect();
    answer.expect("it goes on").map(list).map_err(|error| error.to_string())
}

/// The addresses of one answer, or the error.
async fn once<Q: super::schedule::Question>(source: &mut Schedule<Q, Table>) -> Result<Vec<String>, String> {
    let found = source.ask().await.map_err(|error| error.to_string())?;
    Ok(found.endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect())
}
