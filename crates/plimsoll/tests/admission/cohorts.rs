//! Sessions that are admitted or shed as a whole.

use std::time::{SystemTime, UNIX_EPOCH};

use super::*;

const SESSIONS: usize = 40;
/// Measured requests of each session, and the requests before them, from which the server learns
/// their cost.
const ROUNDS: [usize; 2] = [40, 20];

/// Offers a server twice its capacity. Returns the admitted share of each session's requests.
async fn taken_on(builder: ServerLayerBuilder) -> Vec<f64> {
    let layer = builder.cpus(0.05).build();
    let busy = layer.layer(service(|_| async {
        burn(MS / 2);
        tokio::time::sleep(20 * MS).await;
        String::new()
    }));
    let mut taken = vec![0.0; SESSIONS];
    let mut requests = tokio::task::JoinSet::new();
    for round in 0..ROUNDS[0] + ROUNDS[1] {
        for session in 0..SESSIONS {
            let request = with(get("/busy"), &[("x-session", &format!("session-{session}"))]);
            let answer = busy.clone().oneshot(request);
            requests.spawn(async move { (round, session, is_shed(&answer.await.unwrap())) });
            tokio::time::sleep(5 * MS).await;
        }
    }
    while let Some(done) = requests.join_next().await {
        let (round, session, shed) = done.unwrap();
        if round >= ROUNDS[1] && shed.is_none() {
            taken[session] += 1.0 / ROUNDS[0] as f64;
        }
    }
    taken
}

fn hour() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 3_600
}

#[tokio::test]
async fn overloaded_servers_turn_the_same_sessions_away_first() {
    tokio::time::pause();
    let by_header = || builder().cohort_header(HeaderName::from_static("x-session"));
    let by_rule = || builder().cohort_by(|head| Cohort::new(head.headers.get("x-session")?.to_str().ok()?));
    let (one, other) = loop {
        let begun = hour();
        let both = (taken_on(by_header()).await, taken_on(by_rule()).await);
        // Luck turns with the hour.
        if hour() == begun {
            break both;
        }
    };
    let both = || one.iter().zip(&other);
    let taken = both().filter(|(one, other)| **one > 0.8 && **other > 0.8).count();
    let turned_away = both().filter(|(one, other)| **one < 0.3 && **other < 0.3).count();
    // The overload of each depends on this machine's load; the order of the sessions does not.
    let is_contrary = |(a, b): ((&f64, &f64), (&f64, &f64))| a.0 - b.0 > 0.4 && b.1 - a.1 > 0.4;
    let contrary = both().flat_map(|a| both().map(move |b| (a, b))).filter(|pair| is_contrary(*pair)).count();
    assert!(taken >= 5 && turned_away >= 5 && contrary == 0, "{one:.2?} {other:.2?}");
}
