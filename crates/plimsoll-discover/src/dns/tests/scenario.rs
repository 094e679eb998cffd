//! Answers over time, through the machine that decides on the members.

use plimsoll_core::Timestamp;
use plimsoll_core::discover::{Listed, Merge, MergeConfig, Readiness};
use tokio::time::Instant;

use super::*;
use crate::dns::CONFIRMATIONS;

const NAME: &str = "web.internal:80";

/// The time until the next answer.
async fn wait<Q: crate::dns::schedule::Question>(source: &mut Schedule<Q, Table>) -> Duration {
    let begun = Instant::now();
    let _ = source.next().await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn ttl_decides_on_the_next_question() {
    let table = Table::default();
    for (ttl, expected) in [(0, 1), (1, 1), (60, 60), (86_400, 300)] {
        table.v4("web.internal", ttl, [1]);
        let mut source = table.host(NAME);
        assert_eq!(wait(&mut source).await, seconds(0));
        assert_eq!(wait(&mut source).await, seconds(expected), "TTL {ttl}");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_record_is_asked_for_again_after_a_second() {
    let table = Table::default();
    table.v4("web.internal", 300, [1, 2]);
    let mut source = table.host(NAME);
    wait(&mut source).await;
    table.v4("web.internal", 300, [1]);
    assert_eq!(wait(&mut source).await, seconds(300));
    assert_eq!(wait(&mut source).await, seconds(1));
    assert_eq!(wait(&mut source).await, seconds(300), "the absence is confirmed");
}

#[tokio::test(start_paused = true)]
async fn errors_back_off_to_half_a_minute_with_jitter() {
    let table = Table::default();
    for kind in [RecordType::A, RecordType::AAAA] {
        table.set("web.internal", kind, Reply::Code(ResponseCode::ServFail));
    }
    let mut source = table.host(NAME);
    wait(&mut source).await;
    for nominal in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
        let share = wait(&mut source).await.as_secs_f64() / nominal;
        assert!((0.79..=1.21).contains(&share), "{share} of {nominal} s");
    }
    table.v4("web.internal", 60, [1]);
    assert_eq!(shown(source.next().await).unwrap(), ["10.0.0.1:80"]);
    assert_eq!(wait(&mut source).await, seconds(60));
}

/// Members by the answers of a source, in its time.
struct Members {
    source: Schedule<Host, Table>,
    merge: Merge<String, ()>,
    begun: Instant,
}

impl Members {
    fn new(table: &Table) -> Self {
        let config = MergeConfig { confirmations: CONFIRMATIONS, ..MergeConfig::default() };
        let merge = Merge::new(Timestamp::from_origin(seconds(0)), config, vec![]);
        Self { source: table.host(NAME), merge, begun: Instant::now() }
    }

    /// The members half a second after the next answer.
    async fn next(&mut self) -> usize {
        let answer = shown(self.source.next().await);
        let now = Timestamp::from_origin(self.begun.elapsed());
        let listed = |key| Listed { key, properties: (), readiness: Readiness::Ready };
        match answer {
            Ok(list) => self.merge.on_list(now, list.into_iter().map(listed).collect(), &mut |_| ()),
            Err(_) => self.merge.on_error(now, &mut |_| ()),
        }
        self.merge.handle_timeout(now + Duration::from_millis(500), &mut |_| ());
        self.merge.members().len()
    }
}

#[tokio::test(start_paused = true)]
async fn backend_is_removed_after_two_answers_without_it() {
    let table = Table::default();
    table.v4("web.internal", 5, 1..=10);
    let mut members = Members::new(&table);
    assert_eq!(members.next().await, 10);
    // A part of the answer, once.
    table.v4("web.internal", 5, 1..=7);
    assert_eq!(members.next().await, 10);
    table.v4("web.internal", 5, 1..=10);
    assert_eq!(members.next().await, 10);
    // Other parts in turn: none is missing twice.
    for part in [1..=6, 5..=10, 1..=6, 5..=10] {
        table.v4("web.internal", 5, part);
        assert_eq!(members.next().await, 10);
    }
    table.v4("web.internal", 5, 1..=7);
    members.next().await;
    assert_eq!(members.next().await, 7);
}

#[tokio::test(start_paused = true)]
async fn failures_and_empty_answers_remove_no_backend() {
    let table = Table::default();
    table.v4("web.internal", 5, 1..=3);
    let mut members = Members::new(&table);
    assert_eq!(members.next().await, 3);
    for reply in [Reply::NxDomain, Reply::NoData(60), Reply::Code(ResponseCode::ServFail), Reply::Never] {
        for kind in [RecordType::A, RecordType::AAAA] {
            table.set("web.internal", kind, reply.clone());
        }
        for _ in 0..5 {
            assert_eq!(members.next().await, 3, "{reply:?}");
        }
    }
}
