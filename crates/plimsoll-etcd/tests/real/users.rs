//! Users: tokens that are lost, passwords and roles that change.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_etcd::{Client, Credentials, EtcdConfig, EtcdError, Mirror, Session, Txn, Update};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::etcd::{Etcd, SOON, mirror_until, until, with_each};
use crate::relay::{Relay, endpoints};

type Password = Arc<Mutex<String>>;

/// A client as `plimsoll`, and its password.
fn client(endpoints: impl IntoIterator<Item = String>) -> (Client, Password) {
    let password: Password = Arc::new(Mutex::new("first".to_owned()));
    let source = Arc::clone(&password);
    let config = EtcdConfig::new(endpoints)
        .unwrap()
        .credentials(move || Ok(Credentials { user: "plimsoll".to_owned(), password: source.lock().clone() }));
    (Client::new(config), password)
}

/// Turns users on: `root`, and `plimsoll` with a right to `/plimsoll/v1/`.
fn enable(etcd: &Etcd) {
    for arguments in [
        "user add root:root",
        "role add root",
        "user grant-role root root",
        "role add fleet",
        "role grant-permission fleet --prefix=true readwrite /plimsoll/v1/",
        "user add plimsoll:first",
        "user grant-role plimsoll fleet",
        "auth enable",
    ] {
        etcd.etcdctl(&arguments.split(' ').collect::<Vec<_>>());
    }
}

fn as_root(etcd: &Etcd, arguments: &str) {
    etcd.etcdctl(&std::iter::once("--user=root:root").chain(arguments.split(' ')).collect::<Vec<_>>());
}

fn set_password(etcd: &Etcd, password: &str) {
    // The tool reads a new password of an existing user from its input alone.
    let command = format!(
        "printf '{password}\\n' | {} --user=root:root --endpoints={} user passwd --interactive=false plimsoll",
        etcd.etcdctl_path().display(),
        etcd.endpoints().join(",")
    );
    let done = std::process::Command::new("sh").args(["-c", &command]).env("ETCDCTL_API", "3").output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// The requests of a method that etcd counted.
async fn requests(etcd: &Etcd, method: &str) -> u64 {
    let mut stream = TcpStream::connect(&etcd.members[0].endpoint).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let of_method =
        |line: &&str| line.starts_with("grpc_server_handled_total") && line.contains(&format!("\"{method}\""));
    let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    answer.lines().filter(of_method).map(count).sum::<f64>() as u64
}

#[tokio::test]
async fn client_and_users_may_come_in_any_order() {
    with_each(1, |etcd| async move {
        let (client, _) = client(etcd.endpoints());
        let key = format!("{}a", client.prefix());
        assert!(client.txn(Txn::new().put(&key, "1", None)).await.unwrap().is_done);
        let mut mirror = Mirror::new(client.clone(), "");
        mirror_until(&mut mirror, "the record", |records| records.len() == 1).await;
        enable(&etcd);
        assert!(client.txn(Txn::new().put(&key, "2", None)).await.unwrap().is_done);
        mirror_until(&mut mirror, "the change", |records| records["a"] == "2").await;
        let refused = client.get("/elsewhere").await.unwrap_err();
        assert_eq!(refused, EtcdError::Refused("etcdserver: permission denied".to_owned()));
        let anonymous = etcd.client().get(&key).await.unwrap_err();
        assert!(matches!(anonymous, EtcdError::Refused(_)), "{anonymous}");
        as_root(&etcd, "auth disable");
        assert!(client.txn(Txn::new().put(&key, "3", None)).await.unwrap().is_done);
        mirror_until(&mut mirror, "the change", |records| records["a"] == "3").await;
    })
    .await;
}

#[tokio::test]
async fn lost_tokens_are_replaced() {
    with_each(1, |mut etcd| async move {
        enable(&etcd);
        // The mirror makes no requests but its own: no other refreshes its token.
        let relays = etcd.relays().await;
        let (watching, watching_password) = client(endpoints(&relays));
        let mut mirror = Mirror::new(watching, "");
        let (client, password) = client(etcd.endpoints());
        let session = Session::start(client.clone(), Duration::from_secs(5));
        let mut leases = session.lease();
        let first = leases.wait_for(Option::is_some).await.unwrap().unwrap();
        let key = format!("{}a", client.prefix());
        let txn = |value: &str| Txn::new().put(&key, value, Some(first.id));
        client.txn(txn("1")).await.unwrap();
        mirror_until(&mut mirror, "the record", |records| records.len() == 1).await;
        // Tokens are in the memory of a member.
        etcd.kill(0);
        etcd.spawn(0);
        etcd.wait_until_serving().await;
        until("a write", async || client.txn(txn("2")).await.is_ok()).await;
        mirror_until(&mut mirror, "a change after the restart", |records| records["a"] == "2").await;
        // Other rights make the tokens old.
        as_root(&etcd, "role add other");
        as_root(&etcd, "user grant-role plimsoll other");
        relays[0].reset();
        client.txn(txn("3")).await.unwrap();
        mirror_until(&mut mirror, "a change after other rights", |records| records["a"] == "3").await;
        // A new password ends them.
        set_password(&etcd, "second");
        let refused = client.txn(txn("4")).await.unwrap_err();
        assert!(matches!(refused, EtcdError::Refused(_)), "{refused}");
        *password.lock() = "second".to_owned();
        *watching_password.lock() = "second".to_owned();
        relays[0].reset();
        client.txn(txn("4")).await.unwrap();
        mirror_until(&mut mirror, "a change after another password", |records| records["a"] == "4").await;
        let renewed = tokio::time::Instant::now();
        until("a renewal", async || leases.borrow().unwrap().renewed > renewed).await;
        assert_eq!(leases.borrow().unwrap().id, first.id);
    })
    .await;
}

#[tokio::test]
async fn token_is_made_once_when_many_requests_need_it() {
    with_each(1, |etcd| async move {
        enable(&etcd);
        let (client, _) = client(etcd.endpoints());
        let all = async |client: &Client| {
            let mut requests = tokio::task::JoinSet::new();
            for _ in 0..20 {
                let (client, key) = (client.clone(), format!("{}a", client.prefix()));
                requests.spawn(async move { client.get(&key).await.map(drop) });
            }
            for done in requests.join_all().await {
                done.unwrap();
            }
        };
        let before = requests(&etcd, "Authenticate").await;
        all(&client).await;
        assert_eq!(requests(&etcd, "Authenticate").await - before, 1);
        // The same password again ends the tokens, too.
        set_password(&etcd, "first");
        let before = requests(&etcd, "Authenticate").await;
        all(&client).await;
        assert_eq!(requests(&etcd, "Authenticate").await - before, 1);
    })
    .await;
}

#[tokio::test]
async fn mirror_without_a_right_waits_for_it_in_peace() {
    with_each(1, |etcd| async move {
        enable(&etcd);
        let relays: Vec<Relay> = etcd.relays().await;
        let (client, _) = client(endpoints(&relays));
        let mut permitted = Mirror::new(client.clone(), "");
        timeout(SOON, permitted.next()).await.expect("a list");
        as_root(&etcd, "user revoke-role plimsoll fleet");
        // Its next list is refused, and so is the watch of one that was listed before.
        let mut mirror = Mirror::new(client.clone(), "");
        relays[0].reset();
        let refused = async |mirror: &mut Mirror| loop {
            if let Update::Failed(EtcdError::Refused(reason)) = mirror.next().await {
                return reason;
            }
        };
        for mirror in [&mut mirror, &mut permitted] {
            let reason = timeout(SOON, refused(mirror)).await.expect("a refusal");
            assert!(reason.contains("permission denied"), "{reason}");
        }
        let (before, connections) = (client.reach().answers(), relays[0].accepted());
        sleep(Duration::from_secs(6)).await;
        let asked = client.reach().answers() - before;
        assert!(asked < 30, "{asked} requests of two mirrors in 6 s");
        assert_eq!(relays[0].accepted(), connections, "the endpoint is not to blame");
        as_root(&etcd, "user grant-role plimsoll fleet");
        let txn = Txn::new().put(&format!("{}a", client.prefix()), "1", None);
        client.txn(txn).await.unwrap();
        for mirror in [&mut mirror, &mut permitted] {
            mirror_until(mirror, "the record", |records| records.len() == 1).await;
        }
    })
    .await;
}
