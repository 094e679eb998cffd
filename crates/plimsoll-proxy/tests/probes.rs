//! A proxy that answers probes by UDP hands its answers to a successor, or goes on.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use plimsoll::probe::{Keyring, ServerState};
use plimsoll_core::probe::{Answer, AnswerState, Instance, Purpose, Query, VERSION};
use plimsoll_proxy::config::Config;
use plimsoll_proxy::{Proxy, Sockets};
use plimsoll_wire::probe::{Message, decode, encode};

const CLIENT: Instance = Instance::new(77).unwrap();
/// Answers come from a thread of this process within this time, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(10);

fn config(port: u16) -> Config {
    let text = format!(
        "threads = 1\n[admin]\nlisten = \"off\"\n[[listeners]]\naddress = \"127.0.0.1:{port}\"\n[listeners.probes]\n\
         [[routes]]\nanswer = {{ status = 204 }}\n[clusters.none]\nbackends = [\"127.0.0.1:9\"]\n"
    );
    Config::parse("test", &text).unwrap()
}

fn address(proxy: &Proxy) -> SocketAddr {
    proxy.listeners()[0].address.inet().unwrap()
}

fn client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn ask(client: &UdpSocket, nonce: u64) {
    let purpose = Purpose::Ask { round_trip_us: 0 };
    let port = client.peer_addr().unwrap().port();
    let query = Query { version: VERSION, nonce, instance: CLIENT, port, lease_s: 0, cookie: 0, purpose };
    client.send(&encode(&Message::Query(query), &Keyring::keyless(), 0, CLIENT).unwrap()).unwrap();
}

fn answer(client: &UdpSocket) -> Option<Answer> {
    let mut bytes = [0; 2048];
    let length = client.recv(&mut bytes).ok()?;
    match decode(&bytes[..length], &Keyring::keyless(), Some(CLIENT)).unwrap().message {
        Message::Answer(answer) => Some(answer),
        _ => None,
    }
}

#[tokio::test]
async fn abandoned_handover_goes_on_as_the_same_process() {
    let proxy = Proxy::start(config(0)).await.unwrap();
    let client = client(address(&proxy));
    ask(&client, 1);
    let before = answer(&client).unwrap();
    assert_eq!(before.state, AnswerState::Server(ServerState::Healthy));
    let handover = proxy.probe_handover();
    handover.pause();
    ask(&client, 2);
    client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(answer(&client), None, "it is paused");
    drop(handover);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let after = answer(&client).unwrap();
    assert_eq!((after.nonce, after.instance, after.seq), (2, before.instance, before.seq));
}

#[tokio::test]
async fn successor_answers_with_the_same_sockets_and_is_another_process() {
    let old = Proxy::start(config(0)).await.unwrap();
    let port = address(&old).port();
    let client = client(address(&old));
    ask(&client, 1);
    let before = answer(&client).unwrap();
    let handover = old.probe_handover();
    let mut given = Sockets::default();
    old.sockets().unwrap().into_iter().for_each(|socket| given.add(socket).unwrap());
    handover.sockets().unwrap().into_iter().for_each(|socket| given.add_udp(socket).unwrap());
    let new = Proxy::start_shut(config(port), &mut given).await.unwrap();
    assert_eq!(given.udp_addresses().count(), 0, "it has taken the socket");
    ask(&client, 2);
    assert_eq!(answer(&client).unwrap().instance, before.instance, "the successor does not read yet");
    handover.pause();
    ask(&client, 3);
    new.open().unwrap();
    handover.finish();
    let after = answer(&client).unwrap();
    assert_eq!((after.nonce, after.state), (3, AnswerState::Server(ServerState::Healthy)));
    assert_ne!(after.instance, before.instance);
    old.leave_to_successor().await;
    ask(&client, 4);
    assert_eq!(answer(&client).unwrap().instance, after.instance);
}

#[tokio::test]
async fn answers_are_starting_until_the_proxy_opens_and_end_with_the_listener() {
    let proxy = Proxy::start_shut(config(0), &mut Sockets::default()).await.unwrap();
    proxy.answer_probes();
    let client = client(address(&proxy));
    ask(&client, 1);
    assert_eq!(answer(&client).unwrap().state, AnswerState::Server(ServerState::Starting));
    proxy.open().unwrap();
    ask(&client, 2);
    let answered = answer(&client).unwrap();
    assert_eq!((answered.state, answered.seq), (AnswerState::Server(ServerState::Healthy), 2));
    assert_eq!(proxy.listeners()[0].probes.unwrap().responder.dropped_total, 0);
    proxy.drain().await;
    assert!(UdpSocket::bind(address_of(&client)).is_ok(), "the port is free again");
}

fn address_of(client: &UdpSocket) -> SocketAddr {
    client.peer_addr().unwrap()
}
