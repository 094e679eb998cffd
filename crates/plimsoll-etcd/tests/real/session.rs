//! Sessions: leases that live on, and leases that end.

use std::time::Duration;

use plimsoll_etcd::{Lease, Mirror, Session, Txn, Update};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::etcd::{Etcd, SOON, client, mirror_until, until, with_each};
use crate::relay::{endpoints, in_use};

const TTL: Duration = Duration::from_secs(5);

async fn lease(leases: &mut watch::Receiver<Option<Lease>>, holds: impl Fn(&Lease) -> bool) -> Lease {
    let found = timeout(SOON, leases.wait_for(|lease| lease.as_ref().is_some_and(&holds)));
    found.await.expect("a lease in time").unwrap().expect("it is there")
}

/// Whether etcd has the lease.
async fn is_alive(etcd: &Etcd, id: i64) -> bool {
    etcd.try_etcdctl(&["lease", "list", "--command-timeout=2s"]).0.contains(&format!("{id:016x}"))
}

#[tokio::test]
async fn session_keeps_its_lease_when_members_fail() {
    with_each(3, |mut etcd| async move {
        let relays = etcd.relays().await;
        let client = client(endpoints(&relays));
        let session = Session::start(client.clone(), TTL);
        let mut leases = session.lease();
        let first = lease(&mut leases, |_| true).await;
        assert_eq!(first.ttl, TTL);
        assert!(client.txn(Txn::new().put("/s/key", "v", Some(first.id))).await.unwrap().is_done);
        for is_leader in [false, true] {
            let member = if is_leader { etcd.leader().await } else { in_use(&relays) };
            for is_kill in [true, false] {
                if is_kill {
                    etcd.kill(member)
                } else {
                    etcd.pause(member)
                }
                let began = Instant::now();
                let renewed = lease(&mut leases, |lease| lease.renewed > began).await;
                // One lease time to notice, an election.
                assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
                // An election extends all leases.
                assert_eq!(renewed.id, first.id);
                if is_kill {
                    etcd.spawn(member)
                } else {
                    etcd.resume(member)
                }
                etcd.wait_until_ready().await;
                lease(&mut leases, |lease| lease.renewed > began + TTL / 2).await;
            }
        }
        let record = etcd.client().get("/s/key").await.unwrap();
        assert_eq!(record.expect("its lease never ended").lease, leases.borrow().unwrap().id);
    })
    .await;
}

#[tokio::test]
async fn session_gets_another_lease_when_its_own_ended() {
    with_each(1, |etcd| async move {
        let session = Session::start(etcd.client(), TTL);
        let mut leases = session.lease();
        let first = lease(&mut leases, |_| true).await;
        etcd.etcdctl(&["lease", "revoke", &format!("{:x}", first.id)]);
        let second = lease(&mut leases, |lease| lease.id != first.id).await;
        let renewed = lease(&mut leases, |lease| lease.renewed > second.renewed).await;
        assert_eq!(renewed.id, second.id);
        assert!(is_alive(&etcd, second.id).await);
    })
    .await;
}

#[tokio::test]
async fn end_deletes_the_keys_of_a_session() {
    with_each(1, |etcd| async move {
        let client = etcd.client();
        let session = Session::start(client.clone(), TTL);
        let first = lease(&mut session.lease(), |_| true).await;
        client.txn(Txn::new().put("/s/key", "v", Some(first.id))).await.unwrap();
        session.end().await.unwrap();
        assert_eq!(client.get("/s/key").await.unwrap(), None);
        // No task is left that would get another one.
        tokio::time::sleep(TTL / 2).await;
        assert!(etcd.etcdctl(&["lease", "list"]).contains("found 0 leases"));
        // One that has ended already is no error.
        let session = Session::start(client.clone(), TTL);
        let second = lease(&mut session.lease(), |_| true).await;
        etcd.etcdctl(&["lease", "revoke", &format!("{:x}", second.id)]);
        session.end().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn dropped_session_lets_its_lease_expire() {
    with_each(1, |etcd| async move {
        let client = etcd.client();
        let session = Session::start(client.clone(), Duration::from_secs(2));
        let first = lease(&mut session.lease(), |_| true).await;
        let key = format!("{}s/key", client.prefix());
        client.txn(Txn::new().put(&key, "v", Some(first.id))).await.unwrap();
        let mut mirror = Mirror::new(client, "s/");
        mirror_until(&mut mirror, "the key", |records| records.len() == 1).await;
        drop(session);
        mirror_until(&mut mirror, "its end", |records| records.is_empty()).await;
        assert!(!is_alive(&etcd, first.id).await);
    })
    .await;
}

#[tokio::test]
async fn session_begins_when_etcd_comes_after_it() {
    for program in crate::etcd::programs() {
        let mut etcd = Etcd::new(&program, 1, &[]);
        let session = Session::start(etcd.client(), TTL);
        let mut mirror = Mirror::new(etcd.client(), "a/");
        let failed = timeout(SOON, mirror.next()).await.unwrap();
        assert!(matches!(failed, Update::Failed(_)), "{failed:?}");
        assert_eq!(*session.lease().borrow(), None);
        etcd.spawn(0);
        let first = lease(&mut session.lease(), |_| true).await;
        assert!(is_alive(&etcd, first.id).await);
        let listed = async { while !matches!(mirror.next().await, Update::Listed) {} };
        timeout(SOON, listed).await.expect("a list");
    }
}

#[tokio::test]
async fn session_has_a_living_lease_after_all_members_were_silent() {
    with_each(3, |etcd| async move {
        let client = etcd.client();
        let session = Session::start(client.clone(), Duration::from_secs(2));
        let mut leases = session.lease();
        let first = lease(&mut leases, |_| true).await;
        for member in 0..3 {
            etcd.pause(member);
        }
        // Until the session itself no longer believes in it, and some more.
        until("the lease is no more sure", async || {
            let lease = leases.borrow().expect("it stays");
            lease.sure_until() + Duration::from_secs(2) < Instant::now()
        })
        .await;
        assert_eq!(leases.borrow().unwrap().id, first.id, "nobody said that it ended");
        until("etcd is known to be lost", async || !client.reach().is_reachable()).await;
        for member in 0..3 {
            etcd.resume(member);
        }
        let began = Instant::now();
        until("a living lease", async || {
            let last = leases.borrow().expect("it stays");
            last.renewed > began && is_alive(&etcd, last.id).await
        })
        .await;
        assert!(client.reach().is_reachable());
    })
    .await;
}
