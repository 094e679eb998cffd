//! Real servers on the loopback: what the table in place of the network leaves out.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll::discover::Discover as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

use super::*;
use crate::dns::servers::Servers;
use crate::dns::{Dns, DnsError, Named, Names};

/// The bytes that answer a question over UDP, or over TCP.
type Behaviour = fn(&Message, Transport) -> Option<Vec<u8>>;

#[derive(Clone, Copy, PartialEq)]
enum Transport {
    Udp,
    Tcp,
}

/// A DNS server that ends when it is dropped.
struct Server {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Server {
    async fn start(behaviour: Behaviour) -> Self {
        let (tcp, udp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (tcp, udp);
            }
        };
        let address = udp.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let by_udp = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok((length, peer)) = udp.recv_from(&mut buffer).await {
                count.fetch_add(1, Ordering::SeqCst);
                let question = Message::from_vec(&buffer[..length]).unwrap();
                if let Some(answer) = behaviour(&question, Transport::Udp) {
                    udp.send_to(&answer, peer).await.unwrap();
                }
            }
        });
        let by_tcp = tokio::spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let mut question = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut question).await.unwrap();
                if let Some(answer) = behaviour(&Message::from_vec(&question).unwrap(), Transport::Tcp) {
                    stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
                    stream.write_all(&answer).await.unwrap();
                }
            }
        });
        Self { address, asked, tasks: vec![by_udp, by_tcp] }
    }

    async fn addresses(&self) -> Result<usize, DnsError> {
        let found = Dns::new("web.internal:80").unwrap().at(self.address).look_up().await?;
        Ok(found.endpoints.len())
    }
}

/// The bytes that answer `question` with so many IPv4 addresses.
fn answer(question: &Message, addresses: u16) -> Vec<u8> {
    reply(question, |message| {
        if question.queries[0].query_type() == RecordType::A {
            let address = |i: u16| RData::from(IpAddr::from([10, 0, (i >> 8) as u8, i as u8]));
            let name = question.queries[0].name().clone();
            message.add_answers((0..addresses).map(|i| Record::from_rdata(name.clone(), 60, address(i))));
        }
    })
}

fn reply(question: &Message, fill: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut message = Message::response(question.metadata.id, OpCode::Query);
    message.add_query(question.queries[0].clone());
    fill(&mut message);
    message.to_vec().unwrap()
}

#[tokio::test]
async fn names_of_a_configuration_are_asked_at_their_server() {
    let server = Server::start(|question, _| Some(answer(question, 2))).await;
    let properties = Endpoint::new("0.0.0.0:0".parse::<SocketAddr>().unwrap());
    let named = Named { name: "web.internal:80".to_owned(), known: Default::default(), properties };
    let mut names = Names::new(vec![named]).at(server.address);
    assert_eq!(names.description(), format!("at {}", server.address));
    assert_eq!(names.next().await.unwrap().unwrap(), []);
    assert_eq!(names.next().await.unwrap().unwrap().len(), 2);
}

#[tokio::test]
async fn addresses_come_by_udp() {
    let server = Server::start(|question, _| {
        assert!(question.metadata.recursion_desired);
        assert_eq!(question.edns.as_ref().unwrap().max_payload(), 1232);
        Some(answer(question, 20))
    })
    .await;
    assert_eq!(server.addresses().await.unwrap(), 20);
}

#[tokio::test]
async fn truncated_answer_is_asked_for_again_by_tcp() {
    let server = Server::start(|question, transport| {
        let whole = answer(question, 1500);
        if transport == Transport::Tcp {
            return Some(whole);
        }
        // As real servers do it: the bytes that fit, which end within a record.
        let mut part = whole[..whole.len().min(500)].to_vec();
        part[2] |= 0x02;
        Some(part)
    })
    .await;
    assert_eq!(server.addresses().await.unwrap(), 1500);
}

#[tokio::test]
async fn answer_that_is_wrong_is_an_error_with_its_reason() {
    let cases: [(Behaviour, &str); 4] = [
        (|question, _| Some(answer(question, 1)[..14].to_vec()), "malformed"),
        (
            |question, _| Some(reply(question, |message| message.metadata.response_code = ResponseCode::ServFail)),
            "Server Failure",
        ),
        (
            |question, _| Some(reply(question, |message| message.metadata.response_code = ResponseCode::Refused)),
            "Query Refused",
        ),
        (|question, _| Some(reply(question, |message| message.metadata.truncation = true)), "truncated"),
    ];
    for (behaviour, expected) in cases {
        let server = Server::start(behaviour).await;
        let error = server.addresses().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn answers_to_other_questions_are_ignored() {
    let server = Server::start(|question, _| {
        let mut other = question.clone();
        other.queries[0].set_name(fqdn("other.internal"));
        Some(answer(&other, 5))
    })
    .await;
    let mut source = Dns::new("web.internal:80").unwrap().at(server.address);
    let failure = tokio::time::timeout(Duration::from_millis(300), source.look_up()).await;
    assert!(failure.is_err(), "it waits on: {failure:?}");
}

#[tokio::test]
async fn server_without_edns_is_asked_without() {
    let server = Server::start(|question, _| {
        let is_extended = question.edns.is_some();
        Some(match is_extended {
            true => reply(question, |message| message.metadata.response_code = ResponseCode::FormErr),
            false => answer(question, 2),
        })
    })
    .await;
    assert_eq!(server.addresses().await.unwrap(), 2);
}

#[tokio::test]
async fn next_server_is_asked_when_one_fails() {
    let failing = Server::start(|question, _| {
        Some(reply(question, |message| message.metadata.response_code = ResponseCode::ServFail))
    })
    .await;
    let working = Server::start(|question, _| Some(answer(question, 2))).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let servers = Servers::At(working.address);
    for list in [vec![failing.address, working.address], vec![closed, working.address]] {
        let local = Local { servers: list, ..Local::at(working.address) };
        let message = servers.ask(&local, &fqdn("web.internal"), RecordType::A).await.unwrap();
        assert_eq!(message.answers.len(), 2);
    }
    let local = Local { servers: vec![failing.address], ..Local::at(failing.address) };
    let message = servers.ask(&local, &fqdn("web.internal"), RecordType::A).await.unwrap();
    assert_eq!(message.metadata.response_code, ResponseCode::ServFail);
    let local = Local { servers: vec![closed], ..Local::at(closed) };
    let error = servers.ask(&local, &fqdn("web.internal"), RecordType::A).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("{closed} cannot be asked: ")), "{error}");
}

#[tokio::test]
async fn dropped_source_asks_no_more() {
    let server = Server::start(|_, _| None).await;
    let mut source = Dns::new("web.internal:80").unwrap().at(server.address);
    // Both families are asked, and each is asked again after a second.
    let _ = tokio::time::timeout(Duration::from_millis(500), source.look_up()).await;
    drop(source);
    let asked = server.asked.load(Ordering::SeqCst);
    assert_eq!(asked, 2);
    tokio::time::pause();
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(server.asked.load(Ordering::SeqCst), asked);
}
