//! Mirrors: no change is lost, and none is made up.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use plimsoll_etcd::{Client, EtcdError, Event, Mirror, Session, Txn, Update};
use tokio::time::{Instant, timeout};

use crate::etcd::{Etcd, SOON, client, mirror_until, put, until, values, with_each};
use crate::relay::{Relay, endpoints, in_use};

#[tokio::test]
async fn mirror_sees_each_change_once_while_members_fail() {
    with_each(3, |mut etcd| async move {
        let relays = etcd.relays().await;
        let client = client(endpoints(&relays));
        let mut mirror = Mirror::new(client.clone(), "m/");
        mirror_until(&mut mirror, "a first list", BTreeMap::is_empty).await;
        timeout(SOON, mirror.next()).await.expect("it is listed");
        let writer = tokio::spawn(write(etcd.client()));
        let mut seen = Vec::new();
        let mut last = 0;
        for fault in 0..3 {
            match fault {
                0 => etcd.kill(in_use(&relays)),
                1 => etcd.kill(etcd.leader().await),
                _ => etcd.pause(in_use(&relays)),
            }
            let until = last + 40;
            for update in mirror_until(&mut mirror, "40 changes", |records| number(records) > until).await {
                assert!(!matches!(update, Update::Listed), "nothing was compacted");
                seen.extend(if let Update::Events(events) = update { events } else { Vec::new() });
            }
            last = number(&values(&mirror));
            for member in 0..3 {
                if etcd.is_running(member) { etcd.resume(member) } else { etcd.spawn(member) }
            }
            etcd.wait_until_ready().await;
        }
        writer.abort();
        // A write whose end was unknown was repeated, so a number may come twice, but none is missing.
        let mut numbers: Vec<u64> = seen.iter().map(number_of).collect();
        let count = numbers.len();
        numbers.dedup();
        assert!(count - numbers.len() < 10, "{count} events of {} numbers", numbers.len());
        let from = numbers[0];
        assert_eq!(numbers, (from..from + numbers.len() as u64).collect::<Vec<_>>());
    })
    .await;
}

/// Counts at one key for as long as it runs.
async fn write(client: Client) {
    let key = format!("{}m/number", client.prefix());
    for number in 1_u64.. {
        while client.txn(Txn::new().put(&key, number.to_string(), None)).await.is_err() {}
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn number(records: &BTreeMap<String, String>) -> u64 {
    records.get("number").map_or(0, |text| text.parse().unwrap())
}

fn number_of(event: &Event) -> u64 {
    let Event::Put(record) = event else { panic!("{event:?}") };
    std::str::from_utf8(&record.value).unwrap().parse().unwrap()
}

#[tokio::test]
async fn mirror_sees_puts_deletions_and_expired_leases() {
    with_each(1, |etcd| async move {
        let client = etcd.client();
        let mut mirror = Mirror::new(client.clone(), "m/");
        let session = Session::start(client.clone(), Duration::from_secs(2));
        let lease = session.lease().wait_for(Option::is_some).await.unwrap().unwrap();
        let key = |name| format!("{}{name}", client.prefix());
        let txn = Txn::new().put(&key("m/a"), "1", None).put(&key("m/b"), "2", Some(lease.id)).put(&key("n"), "", None);
        let revision = client.txn(txn).await.unwrap().revision;
        mirror_until(&mut mirror, "both records", |records| records.len() == 2).await;
        assert_eq!(mirror.revision(), revision);
        assert_eq!(mirror.records()["b"].lease, lease.id);
        client.txn(Txn::new().delete(&key("m/a"))).await.unwrap();
        mirror_until(&mut mirror, "one record", |records| records.len() == 1).await;
        drop(session);
        let updates = mirror_until(&mut mirror, "no record", BTreeMap::is_empty).await;
        assert_eq!(updates.last(), Some(&Update::Events(vec![Event::Delete("b".to_owned())])));
        // etcd goes on answering where nothing changes.
        let contact = async { while mirror.next().await != Update::Contact {} };
        timeout(SOON, contact).await.expect("a contact");
    })
    .await;
}

#[tokio::test]
async fn mirror_moves_on_within_ten_seconds_when_its_connection_is_silent() {
    with_each(3, |etcd| async move {
        let relays = etcd.relays().await;
        let mut mirror = Mirror::new(client(endpoints(&relays)), "m/");
        put(&etcd.client(), "m/a", "1").await;
        mirror_until(&mut mirror, "the record", |records| records.len() == 1).await;
        relays[in_use(&relays)].silence();
        let began = Instant::now();
        put(&etcd.client(), "m/a", "2").await;
        let updates = mirror_until(&mut mirror, "the change", |records| records["a"] == "2").await;
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert!(
            updates.iter().any(|update| matches!(update, Update::Failed(EtcdError::Unreachable(_)))),
            "{updates:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn mirror_lists_again_when_its_revision_was_compacted() {
    with_each(1, |etcd| async move {
        let relays = etcd.relays().await;
        let writer = etcd.client();
        put(&writer, "m/a", "1").await;
        put(&writer, "m/b", "1").await;
        let mut mirror = Mirror::new(client(endpoints(&relays)), "m/");
        mirror_until(&mut mirror, "both records", |records| records.len() == 2).await;
        relays[0].cut();
        writer.txn(Txn::new().delete(&format!("{}m/a", writer.prefix()))).await.unwrap();
        let revision = put(&writer, "m/b", "2").await;
        etcd.etcdctl(&["compact", &revision.to_string()]);
        relays[0].restore();
        let updates =
            mirror_until(&mut mirror, "the changes", |records| records.len() == 1 && records["b"] == "2").await;
        assert_eq!(updates.last(), Some(&Update::Listed));
        // And it goes on from there.
        put(&writer, "m/c", "1").await;
        let updates = mirror_until(&mut mirror, "a record", |records| records.len() == 2).await;
        assert!(matches!(updates.last(), Some(Update::Events(_))));
    })
    .await;
}

#[tokio::test]
async fn mirror_lists_again_when_the_store_was_restored_from_a_backup() {
    with_each(1, |mut etcd| async move {
        let writer = etcd.client();
        put(&writer, "m/old", "1").await;
        let backup = etcd.folder.join("backup");
        etcd.etcdctl(&["snapshot", "save", backup.to_str().unwrap()]);
        for number in 0..20 {
            put(&writer, "m/new", &number.to_string()).await;
        }
        let mut mirror = Mirror::new(writer.clone(), "m/");
        mirror_until(&mut mirror, "both records", |records| records.len() == 2).await;
        etcd.kill(0);
        restore(&etcd, backup.to_str().unwrap());
        etcd.spawn(0);
        let updates = mirror_until(&mut mirror, "the old record", |records| records.len() == 1).await;
        assert_eq!(updates.last(), Some(&Update::Listed));
        assert!(mirror.records().contains_key("old"));
        put(&writer, "m/after", "1").await;
        mirror_until(&mut mirror, "the next change", |records| records.len() == 2).await;
    })
    .await;
}

/// Puts a backup in the place of the only member's data. Its cluster has the same id as before.
fn restore(etcd: &Etcd, backup: &str) {
    let data = etcd.data(0);
    fs::remove_dir_all(&data).unwrap();
    let peer = etcd.peer_url(0);
    let cluster = format!("m0={peer}");
    let mut arguments = vec!["snapshot", "restore", backup, "--name", "m0", "--data-dir", data.to_str().unwrap()];
    arguments.extend(["--initial-cluster", &cluster, "--initial-advertise-peer-urls", &peer]);
    etcd.etcdctl(&arguments);
}

#[tokio::test]
async fn mirror_lists_again_when_another_cluster_answers() {
    for program in crate::etcd::programs() {
        let [first, second] = [Etcd::start(&program, 1).await, Etcd::start(&program, 1).await];
        let relay = Relay::start(&first.members[0].endpoint).await;
        put(&first.client(), "m/a", "first").await;
        // Further than the first, so that its revision is no sign.
        for _ in 0..5 {
            put(&second.client(), "m/b", "second").await;
        }
        let mut mirror = Mirror::new(client([&relay.endpoint]), "m/");
        mirror_until(&mut mirror, "the first", |records| records.contains_key("a")).await;
        relay.redirect(&second.members[0].endpoint);
        let updates = mirror_until(&mut mirror, "the second", |records| records.contains_key("b")).await;
        assert_eq!(updates.last(), Some(&Update::Listed));
        assert_eq!(mirror.records().len(), 1);
    }
}

#[tokio::test]
async fn mirror_goes_on_when_changes_meanwhile_are_larger_than_a_message() {
    with_each(1, |etcd| async move {
        let relays = etcd.relays().await;
        let writer = etcd.client();
        put(&writer, "m/a", "small").await;
        let mut mirror = Mirror::new(client(endpoints(&relays)), "m/");
        mirror_until(&mut mirror, "the record", |records| records.len() == 1).await;
        relays[0].cut();
        for number in 0..40 {
            put(&writer, "m/a", &format!("{number}{}", "x".repeat(1 << 20))).await;
        }
        put(&writer, "m/a", "last").await;
        relays[0].restore();
        mirror_until(&mut mirror, "the last change", |records| records["a"] == "last").await;
    })
    .await;
}

#[tokio::test]
async fn slow_reader_stops_no_other_stream() {
    with_each(1, |etcd| async move {
        let shared = etcd.client();
        let session = Session::start(shared.clone(), Duration::from_secs(5));
        let first = session.lease().wait_for(Option::is_some).await.unwrap().unwrap();
        // Not read, and their messages are more than a connection holds.
        let mut slow: Vec<_> = (0..4).map(|_| Mirror::new(shared.clone(), "m/")).collect();
        for mirror in &mut slow {
            timeout(SOON, mirror.next()).await.expect("a list");
        }
        let writer = etcd.client();
        let value = "x".repeat(100 << 10);
        for number in 0..200 {
            put(&writer, "m/a", &format!("{number}{value}")).await;
        }
        put(&writer, "m/a", "last").await;
        // Others of the same client go on: a mirror, requests, the lease.
        let mut other = Mirror::new(shared.clone(), "m/");
        let began = Instant::now();
        let is_last = |records: &BTreeMap<String, String>| records.get("a").is_some_and(|value| value == "last");
        mirror_until(&mut other, "the last change", is_last).await;
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        let failures = shared.reach().failures();
        until("the lease is renewed", async || session.lease().borrow().unwrap().renewed > began + first.ttl).await;
        assert_eq!(session.lease().borrow().unwrap().id, first.id);
        assert_eq!(shared.reach().failures(), failures, "no stream broke");
        for mirror in &mut slow {
            let updates = mirror_until(mirror, "the last change", is_last).await;
            assert!(updates.iter().all(|update| !matches!(update, Update::Failed(_))), "{updates:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn mirror_keeps_its_records_while_its_prefix_is_too_large() {
    with_each(1, |etcd| async move {
        let client = etcd.client();
        let value = "x".repeat(1 << 20);
        for number in 0..63 {
            put(&client, &format!("m/{number}"), &value).await;
        }
        let mut mirror = Mirror::new(client.clone(), "m/");
        mirror_until(&mut mirror, "a first list", |records| records.len() == 63).await;
        put(&client, "m/63", &value).await;
        let updates = async {
            loop {
                if let Update::Failed(error) = mirror.next().await {
                    return error;
                }
            }
        };
        let error = timeout(SOON, updates).await.expect("a failure");
        assert!(matches!(error, EtcdError::TooLarge { .. }), "{error}");
        assert_eq!(mirror.records().len(), 64);
        let txn = (0..10).fold(Txn::new(), |txn, number| txn.delete(&format!("{}m/{number}", client.prefix())));
        client.txn(txn).await.unwrap();
        let updates = mirror_until(&mut mirror, "a smaller list", |records| records.len() == 54).await;
        assert_eq!(updates.last(), Some(&Update::Listed));
    })
    .await;
}

#[tokio::test]
async fn mirrors_notice_that_etcd_lost_its_quorum() {
    with_each(3, |etcd| async move {
        let client = etcd.client();
        let mut mirror = Mirror::new(client.clone(), "m/");
        put(&client, "m/a", "1").await;
        mirror_until(&mut mirror, "the record", |records| records.len() == 1).await;
        let leader = etcd.leader().await;
        for member in (0..3).filter(|&member| member != leader) {
            etcd.pause(member);
        }
        // The mirror alone makes requests.
        until("etcd is known to be lost", async || {
            drop(timeout(Duration::from_millis(10), mirror.next()).await);
            !client.reach().is_reachable()
        })
        .await;
        assert_eq!(values(&mirror)["a"], "1");
        for member in (0..3).filter(|&member| member != leader) {
            etcd.resume(member);
        }
        until("etcd is back", async || {
            drop(timeout(Duration::from_millis(10), mirror.next()).await);
            client.reach().is_reachable()
        })
        .await;
        // There may be one more election.
        let writer = etcd.client();
        let txn = Txn::new().put(&format!("{}m/a", writer.prefix()), "2", None);
        until("a write", async || writer.txn(txn.clone()).await.is_ok()).await;
        mirror_until(&mut mirror, "the change", |records| records["a"] == "2").await;
    })
    .await;
}
