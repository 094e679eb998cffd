//! Heads of responses mean the same here and in `plimsoll::client`.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use plimsoll_core::retry::{Advice, Failure};
use plimsoll_tower::classify::{grpc_head_end, http_end};

/// The rows of `tests/response-heads.txt`: status, headers, and the expected columns.
fn rows() -> Vec<(StatusCode, HeaderMap, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/response-heads.txt");
    let text = std::fs::read_to_string(path).expect("the file is there");
    let rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let [status, headers, outcome, failure] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("four columns: {line}")
        };
        let pairs = headers.split("; ").filter_map(|pair| pair.split_once(": "));
        let pair = |(name, value): (&str, &str)| {
            (name.parse::<HeaderName>().expect("a name"), value.parse::<HeaderValue>().expect("a value"))
        };
        let status = status.parse().expect("a status");
        (status, pairs.map(pair).collect(), format!("{outcome} | {failure}"))
    });
    rows.collect()
}

#[test]
fn heads_have_the_meaning_in_the_shared_table() {
    let is_retried = |failure: &Failure| {
        !matches!(failure, Failure::Final | Failure::Shed(Advice::Never) | Failure::Failed(Advice::Never))
    };
    let rows = rows();
    assert!(rows.len() > 30, "{}", rows.len());
    for (status, headers, expected) in rows {
        let is_grpc = headers.contains_key("grpc-status");
        let end = if is_grpc { grpc_head_end(status, &headers) } else { Some(http_end(status, &headers)) };
        let end = end.expect("the head decides");
        let failure = end.failure().filter(is_retried);
        let failure = failure.map_or_else(|| "no".to_owned(), |failure| format!("{failure:?}"));
        assert_eq!(format!("{:?} | {failure}", end.outcome()), expected, "{status}, {headers:?}");
    }
}
