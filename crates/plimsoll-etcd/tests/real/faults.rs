//! Requests while members are silent, ended or without a quorum, and the number of connections.

use std::time::Duration;

use plimsoll::tls::{TlsConfig, TlsTrust};
use plimsoll_etcd::{Client, EtcdConfig, EtcdError, Mirror, Session, Txn, Update};
use plimsoll_testkit::ports::free_port;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::etcd::{SOON, client, mirror_until, put, until, with_each};
use crate::relay::{Relay, endpoints, in_use};

/// An endpoint that accepts connections and says nothing.
async fn silent_endpoint() -> (TcpListener, String) {
    let endpoint = format!("127.0.0.1:{}", free_port());
    (TcpListener::bind(&endpoint).await.unwrap(), endpoint)
}

#[tokio::test]
async fn read_moves_on_when_its_member_ends_or_is_silent() {
    with_each(3, |mut etcd| async move {
        let relays = etcd.relays().await;
        let client = client(endpoints(&relays));
        for (is_kill, value) in [(true, "killed"), (false, "paused")] {
            put(&client, "a", value).await;
            let member = in_use(&relays);
            if is_kill {
                etcd.kill(member)
            } else {
                etcd.pause(member)
            }
            let key = format!("{}a", client.prefix());
            // One answer that does not come, an election, and one more request.
            let record = timeout(Duration::from_secs(12), client.get(&key)).await.expect("it moves on");
            match record {
                Ok(record) => assert_eq!(record.unwrap().value, value.as_bytes()),
                // Each of the others answered while it had no leader.
                Err(EtcdError::Unreachable(_)) => {
                    until("a read", async || client.get(&key).await.is_ok()).await;
                }
                Err(error) => panic!("{error}"),
            }
            if is_kill {
                etcd.spawn(member)
            } else {
                etcd.resume(member)
            }
            etcd.wait_until_ready().await;
            assert!(client.reach().is_reachable());
        }
    })
    .await;
}

#[tokio::test]
async fn write_is_repeated_when_its_member_has_no_leader() {
    with_each(3, |etcd| async move {
        let relays = etcd.relays().await;
        let client = client(endpoints(&relays));
        put(&client, "a", "1").await;
        let member = in_use(&relays);
        // The member in use alone, then with the others: while it is cut off from them it loses its leader.
        let others: Vec<_> = (0..3).filter(|&other| other != member).collect();
        for &other in &others {
            etcd.pause(other);
        }
        let alone = crate::etcd::client([&etcd.members[member].endpoint]);
        until("it lost its leader", async || {
            let Err(EtcdError::Unreachable(error)) = alone.get("/a").await else { return false };
            error.contains("no leader")
        })
        .await;
        let Err(EtcdError::Unreachable(_)) = client.get("/a").await else { panic!("there is no quorum") };
        assert!(!client.reach().is_reachable());
        for &other in &others {
            etcd.resume(other);
        }
        until("a write", async || client.txn(Txn::new().put("/a", "2", None)).await.is_ok()).await;
        assert!(client.reach().is_reachable());
    })
    .await;
}

#[tokio::test]
async fn silent_endpoint_is_left() {
    with_each(1, |etcd| async move {
        let (_listener, silent) = silent_endpoint().await;
        for _ in 0..6 {
            let client = client([&silent, &etcd.members[0].endpoint]);
            timeout(Duration::from_secs(8), client.get("/a")).await.expect("it moves on").unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn silent_endpoint_is_left_by_callers_with_little_time() {
    with_each(1, |etcd| async move {
        // It accepts connections, so that requests wait; with TLS the connections themselves wait.
        let (_listener, silent) = silent_endpoint().await;
        for _ in 0..4 {
            let client = client([&silent, &etcd.members[0].endpoint]);
            until("an answer", async || matches!(timeout(Duration::from_secs(1), client.get("/a")).await, Ok(Ok(_))))
                .await;
        }
    })
    .await;
}

#[tokio::test]
async fn waiting_requests_fail_together_when_no_endpoint_connects() {
    let (_listener, silent) = silent_endpoint().await;
    let config = EtcdConfig::new([silent]).unwrap().tls(|| Ok(TlsConfig::new(TlsTrust::Anybody, None, None)));
    let client = Client::new(config);
    let began = Instant::now();
    let mut requests = JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        requests.spawn(async move { client.get("/a").await.unwrap_err() });
    }
    for error in requests.join_all().await {
        assert!(matches!(error, EtcdError::Unreachable(_)), "{error}");
    }
    // Two seconds for a connection; one after the other they would take 100 s.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn broken_connection_is_replaced_once_when_many_notice_it() {
    with_each(3, |etcd| async move {
        let relays = etcd.relays().await;
        let client = client(endpoints(&relays));
        put(&client, "m/a", "1").await;
        let mut mirrors: Vec<_> = (0..30).map(|_| Mirror::new(client.clone(), "m/")).collect();
        for mirror in &mut mirrors {
            mirror_until(mirror, "a first list", |records| records.len() == 1).await;
        }
        for (fault, value) in [(Relay::silence as fn(&Relay), "2"), (Relay::cut, "3")] {
            let (used, before) = (in_use(&relays), accepted(&relays));
            fault(&relays[used]);
            put(&etcd.client(), "m/a", value).await;
            for mirror in &mut mirrors {
                mirror_until(mirror, "the change", |records| records["a"] == value).await;
            }
            assert_eq!(accepted(&relays), before + 1, "one new connection");
            relays[used].restore();
            until("one connection", async || relays.iter().map(Relay::open).sum::<usize>() == 1).await;
        }
    })
    .await;
}

#[tokio::test]
async fn one_endpoint_keeps_its_new_connection_when_many_notice_a_break() {
    with_each(1, |etcd| async move {
        let relays = etcd.relays().await;
        let client = client(endpoints(&relays));
        put(&client, "m/a", "1").await;
        let mut mirrors: Vec<_> = (0..30).map(|_| Mirror::new(client.clone(), "m/")).collect();
        for mirror in &mut mirrors {
            mirror_until(mirror, "a first list", |records| records.len() == 1).await;
        }
        assert_eq!(relays[0].accepted(), 1);
        relays[0].silence();
        // Each notices it by itself, at about the same time.
        for mirror in &mut mirrors {
            let failed = async { while !matches!(mirror.next().await, Update::Failed(_)) {} };
            timeout(SOON, failed).await.expect("the silence is noticed");
        }
        relays[0].restore();
        put(&etcd.client(), "m/a", "2").await;
        for mirror in &mut mirrors {
            mirror_until(mirror, "the change", |records| records["a"] == "2").await;
        }
        until("one connection stays", async || relays[0].open() == 1).await;
        let accepted = relays[0].accepted();
        put(&client, "m/a", "3").await;
        for mirror in &mut mirrors {
            mirror_until(mirror, "the change", |records| records["a"] == "3").await;
        }
        assert_eq!(relays[0].accepted(), accepted);
    })
    .await;
}

#[tokio::test]
async fn idle_connection_is_not_ended_by_etcd() {
    with_each(1, |etcd| async move {
        let relays = etcd.relays().await;
        let idle = client(endpoints(&relays));
        idle.get("/a").await.unwrap();
        // etcd ends a connection at the third ping without a request: with one in 6 s after 18 s to 24 s.
        sleep(Duration::from_secs(27)).await;
        assert_eq!(relays[0].open(), 1, "GOAWAY with too_many_pings");
        idle.get("/a").await.unwrap();
        assert_eq!(relays[0].accepted(), 1);
    })
    .await;
}

#[tokio::test]
async fn dropped_requests_do_no_harm_to_a_connection() {
    with_each(1, |etcd| async move {
        let relays = etcd.relays().await;
        let client = client(endpoints(&relays));
        let mut mirror = Mirror::new(client.clone(), "m/");
        for step in 0..100 {
            drop(timeout(Duration::from_micros(40 * step), client.get("/a")).await);
            drop(timeout(Duration::from_micros(4 * step), mirror.next()).await);
            put(&client, "m/a", &step.to_string()).await;
        }
        mirror_until(&mut mirror, "the last change", |records| records.get("a").is_some_and(|a| a == "99")).await;
        assert_eq!(relays[0].accepted(), 1);
        assert_eq!(client.reach().failures(), 0);
    })
    .await;
}

#[tokio::test]
async fn dropped_client_leaves_no_connection() {
    with_each(1, |etcd| async move {
        let relays = etcd.relays().await;
        let client = client(endpoints(&relays));
        put(&client, "m/a", "1").await;
        let session = Session::start(client.clone(), Duration::from_secs(5));
        let mut mirror = Mirror::new(client.clone(), "m/");
        mirror_until(&mut mirror, "the record", |records| records.len() == 1).await;
        session.lease().wait_for(Option::is_some).await.unwrap();
        assert_eq!(relays[0].open(), 1);
        drop((session, mirror, client));
        until("its connection ends", async || relays[0].open() == 0).await;
    })
    .await;
}

#[tokio::test]
async fn request_succeeds_after_each_restart_of_the_only_member() {
    with_each(1, |mut etcd| async move {
        let client = etcd.client();
        for number in 0..3 {
            put(&client, "a", &number.to_string()).await;
            etcd.kill(0);
            let error = client.get("/a").await.unwrap_err();
            assert!(matches!(error, EtcdError::Unreachable(_)), "{error}");
            assert!(!client.reach().is_reachable());
            etcd.spawn(0);
            etcd.wait_until_ready().await;
            assert!(client.get("/a").await.is_ok());
            assert!(client.reach().is_reachable());
        }
    })
    .await;
}

fn accepted(relays: &[Relay]) -> usize {
    relays.iter().map(Relay::accepted).sum()
}
