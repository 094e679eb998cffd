//! Asks a DNS server, over UDP, and over TCP after a truncated answer.
//!
//! Servers are asked in the order of `resolv.conf`. The next one is asked when the one before failed,
//! or has not answered for a second. It may still answer: the first proper answer counts. A lost
//! datagram is sent again each second. Each question has a socket of its own, so its port is random,
//! and nothing stays when the source is dropped.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};

use super::Failure;
use super::system::Local;

/// Time after which a datagram is sent again, and the next server is asked beside the slow one.
const RESEND_INTERVAL: Duration = Duration::from_secs(1);
/// Largest datagram that is asked for: it passes every network in one piece (DNS flag day 2020).
const MAX_DATAGRAM: u16 = 1232;

/// A way to ask DNS servers.
pub(super) trait Ask: Send + Sync {
    /// The rules about names, as they are now.
    fn local(&self) -> impl Future<Output = Result<Local, Failure>> + Send;

    /// The answer about exactly this name. It has any response code.
    fn ask(
        &self,
        local: &Local,
        name: &Name,
        kind: RecordType,
    ) -> impl Future<Output = Result<Message, Failure>> + Send;
}

/// The servers to ask.
#[derive(Clone, Copy, Debug)]
pub(super) enum Servers {
    /// Those of the system.
    System,
    /// One that the user names.
    At(SocketAddr),
}

impl Ask for Servers {
    async fn local(&self) -> Result<Local, Failure> {
        match self {
            Self::System => Local::read().await,
            Self::At(server) => Ok(Local::at(*server)),
        }
    }

    async fn ask(&self, local: &Local, name: &Name, kind: RecordType) -> Result<Message, Failure> {
        let answer = timeout(local.timeout, in_turn(&local.servers, name, kind)).await;
        answer.unwrap_or(Err(Failure::Slow(local.timeout)))
    }
}

/// The first proper answer of the servers, or the first error if there is none.
async fn in_turn(servers: &[SocketAddr], name: &Name, kind: RecordType) -> Result<Message, Failure> {
    let mut left = servers.iter();
    let mut asked = FuturesUnordered::new();
    let mut failure = None;
    loop {
        if let Some(server) = left.next() {
            asked.push(ask_one(*server, name, kind));
        }
        let is_last = left.as_slice().is_empty();
        tokio::select! {
            answer = asked.next() => match answer {
                Some(Ok(message)) if is_proper(&message) => return Ok(message),
                Some(answer) => drop(failure.get_or_insert(answer)),
                // All have failed.
                None => return failure.unwrap_or(Err(Failure::Slow(Duration::ZERO))),
            },
            () = sleep(RESEND_INTERVAL), if !is_last => {}
        }
    }
}

/// Whether the server knows about the name, and no other need be asked.
fn is_proper(message: &Message) -> bool {
    matches!(message.metadata.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
}

async fn ask_one(server: SocketAddr, name: &Name, kind: RecordType) -> Result<Message, Failure> {
    let mut question = Message::query();
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(name.clone(), kind));
    let mut extended = question.clone();
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_DATAGRAM);
    extended.set_edns(edns);
    let answer = exchange(server, &extended).await?;
    // A server that knows no EDNS. BADVERS is no code of its own in the message.
    let is_old = matches!(answer.metadata.response_code, ResponseCode::FormErr | ResponseCode::NotImp);
    if is_old { exchange(server, &question).await } else { Ok(answer) }
}

async fn exchange(server: SocketAddr, question: &Message) -> Result<Message, Failure> {
    let bytes = question.to_vec().map_err(|error| Failure::Malformed(error.to_string()))?;
    let unreachable = |cause| Failure::Unreachable { server, cause: Arc::new(cause) };
    let answer = by_udp(server, question, &bytes).await.map_err(unreachable)?;
    if !is_truncated(&answer) {
        return parse(&answer);
    }
    parse(&by_tcp(server, question, &bytes).await.map_err(unreachable)?)
}

fn parse(answer: &[u8]) -> Result<Message, Failure> {
    Message::from_vec(answer).map_err(|error| Failure::Malformed(error.to_string()))
}

async fn by_udp(server: SocketAddr, question: &Message, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    // Datagrams of others do not arrive.
    socket.connect(server).await?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        socket.send(bytes).await?;
        let receive = async {
            loop {
                let length = socket.recv(&mut buffer).await?;
                if is_answer(&buffer[..length], question) {
                    return Ok::<_, io::Error>(length);
                }
            }
        };
        if let Ok(received) = timeout(RESEND_INTERVAL, receive).await {
            buffer.truncate(received?);
            return Ok(buffer);
        }
    }
}

async fn by_tcp(server: SocketAddr, question: &Message, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut message = length.to_be_bytes().to_vec();
    message.extend_from_slice(bytes);
    stream.write_all(&message).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    match is_answer(&answer, question) {
        true => Ok(answer),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is to another question")),
    }
}

/// Whether a message answers `question`. One that cannot be read in full may do so, by its number.
fn is_answer(bytes: &[u8], question: &Message) -> bool {
    let Some([high, low, flags, ..]) = bytes.first_chunk::<12>() else { return false };
    let is_response = flags & 0x80 != 0;
    let is_numbered = [*high, *low] == question.metadata.id.to_be_bytes();
    let echoes = |message: Message| message.queries.is_empty() || message.queries == question.queries;
    is_response && is_numbered && Message::from_vec(bytes).map_or(true, echoes)
}

/// Whether the server has more to say. Its message may end within a record.
fn is_truncated(bytes: &[u8]) -> bool {
    bytes.get(2).is_some_and(|flags| flags & 0x02 != 0)
}
