//! Names of a configuration, each asked by itself.

use std::net::SocketAddr;

use plimsoll::address::Address;
use plimsoll::discover::{Discover as _, SourceError};
use tokio::time::{Instant, timeout};

use super::*;
use crate::dns::names::{Named, Names};

fn named(name: &str, known: &[u8]) -> Named {
    let (_, port) = name.rsplit_once(':').unwrap();
    let address = |last: &u8| format!("10.0.0.{last}:{port}").parse().unwrap();
    let properties = Endpoint::new("0.0.0.0:0".parse::<SocketAddr>().unwrap()).zone("a");
    Named { name: name.to_owned(), known: [known.iter().map(address).collect(), Vec::new()], properties }
}

fn source(table: &Table, names: impl IntoIterator<Item = Named>) -> Names {
    Names::by(names.into_iter().collect(), table.clone())
}

/// The last numbers of the listed addresses, or the error.
fn short(answer: Option<Result<Vec<Endpoint>, SourceError>>) -> Result<Vec<u8>, String> {
    let list = answer.expect("names are asked for ever").map_err(|error| error.to_string())?;
    assert!(list.iter().all(|backend| backend.zone.as_deref() == Some("a")));
    let last = |backend: &Endpoint| match backend.address.inet().unwrap() {
        SocketAddr::V4(address) => address.ip().octets()[3],
        SocketAddr::V6(_) => unreachable!("there is none"),
    };
    Ok(list.iter().map(last).collect())
}

/// The next answer, and the seconds until it.
async fn next(source: &mut Names) -> (Result<Vec<u8>, String>, u64) {
    let begun = Instant::now();
    let answer = short(source.next().await);
    (answer, begun.elapsed().as_secs())
}

async fn is_silent(source: &mut Names, seconds: u64) -> bool {
    timeout(Duration::from_secs(seconds), source.next()).await.is_err()
}

fn fails(table: &Table, name: &str) {
    for kind in [RecordType::A, RecordType::AAAA] {
        table.set(name, kind, Reply::Code(ResponseCode::ServFail));
    }
}

#[tokio::test(start_paused = true)]
async fn known_addresses_are_the_first_list_and_right_answers_change_nothing() {
    let table = Table::default();
    table.v4("web.internal", 5, [2, 3]);
    let mut source = source(&table, [named("web.internal:80", &[3, 2]), named("10.0.0.1:80", &[])]);
    assert_eq!(next(&mut source).await, (Ok(vec![2, 3, 1]), 0));
    assert!(is_silent(&mut source, 100).await);
    assert!((38..=42).contains(&table.asked().len()), "two families each 5 s");
}

#[tokio::test(start_paused = true)]
async fn address_is_left_out_when_two_answers_of_its_name_lack_it() {
    let table = Table::default();
    table.v4("web.internal", 60, [4]);
    table.v4("other.internal", 1, [9]);
    let mut source = source(&table, [named("web.internal:80", &[2]), named("other.internal:80", &[9])]);
    next(&mut source).await.0.unwrap();
    assert_eq!(next(&mut source).await, (Ok(vec![2, 4, 9]), 0));
    // The answers about the other name say nothing about this one.
    assert_eq!(next(&mut source).await, (Ok(vec![4, 9]), 1));
    // A part of the answer, once.
    table.v4("web.internal", 60, [5]);
    assert_eq!(next(&mut source).await.0, Ok(vec![4, 5, 9]));
    table.v4("web.internal", 60, [4, 5]);
    assert!(is_silent(&mut source, 300).await);
}

#[tokio::test(start_paused = true)]
async fn known_answer_counts_like_one_of_the_source() {
    let table = Table::default();
    table.v4("web.internal", 60, [2]);
    fails(&table, "slow.internal");
    let mut after = named("web.internal:80", &[2]);
    after.known[1] = named("web.internal:80", &[2, 3]).known[0].clone();
    let mut slow = named("slow.internal:80", &[8]);
    slow.known[1] = named("slow.internal:80", &[9]).known[0].clone();
    let mut source = source(&table, [after, slow]);
    assert_eq!(next(&mut source).await, (Ok(vec![2, 3, 8, 9]), 0));
    // The second answer without 3. A failure is no second answer without 9.
    let mut lists = Vec::new();
    while lists.is_empty() {
        lists.extend(next(&mut source).await.0.ok());
    }
    assert_eq!(lists, [vec![2, 8, 9]]);
}

#[tokio::test(start_paused = true)]
async fn family_that_the_last_answer_lacks_and_that_fails_keeps_its_addresses() {
    let table = Table::default();
    table.v4("web.internal", 5, [2]);
    table.set("web.internal", RecordType::AAAA, Reply::Code(ResponseCode::ServFail));
    let mut both = named("web.internal:80", &[2]);
    both.known[1] = vec!["10.0.0.2:80".parse().unwrap(), "[fd00::1]:80".parse().unwrap()];
    let mut source = source(&table, [both]);
    assert_eq!(source.next().await.unwrap().unwrap().len(), 2);
    assert!(is_silent(&mut source, 300).await, "one answer lacks the IPv6 address");
}

#[tokio::test(start_paused = true)]
async fn name_that_dns_cannot_express_keeps_its_addresses_and_others_are_followed() {
    let table = Table::default();
    table.v4("web.internal", 5, [4]);
    let mut source = source(&table, [named("no name:80", &[7]), named("web.internal:80", &[4])]);
    assert_eq!(next(&mut source).await, (Ok(vec![7, 4]), 0));
    assert!(next(&mut source).await.0.unwrap_err().contains("no name:80"));
    table.v4("web.internal", 5, [4, 5]);
    assert_eq!(next(&mut source).await.0, Ok(vec![7, 4, 5]));
    assert!(next(&mut source).await.0.is_err(), "it still has no answer");
}

#[tokio::test(start_paused = true)]
async fn family_that_fails_after_the_start_keeps_the_known_addresses() {
    let table = Table::default();
    table.v4("web.internal", 5, [2]);
    table.set("web.internal", RecordType::AAAA, Reply::Code(ResponseCode::ServFail));
    let mut both = named("web.internal:80", &[2]);
    both.known[0].push("[fd00::1]:80".parse().unwrap());
    let mut source = source(&table, [both]);
    assert_eq!(source.next().await.unwrap().unwrap().len(), 2);
    assert!(is_silent(&mut source, 300).await, "no answer lacked the IPv6 address");
}

#[tokio::test(start_paused = true)]
async fn name_that_fails_or_has_no_address_keeps_its_backends_and_no_other_waits() {
    let table = Table::default();
    table.v4("other.internal", 5, [9]);
    fails(&table, "web.internal");
    let mut source = source(&table, [named("web.internal:80", &[2]), named("other.internal:80", &[9])]);
    next(&mut source).await.0.unwrap();
    let (error, _) = next(&mut source).await;
    assert!(error.unwrap_err().starts_with("web.internal:80: "));
    // A name that does not exist is no removal.
    for kind in [RecordType::A, RecordType::AAAA] {
        table.set("web.internal", kind, Reply::NxDomain);
    }
    assert_eq!(next(&mut source).await.0, Err("web.internal:80: the name has no address".to_owned()));
    table.v4("other.internal", 5, [9, 8]);
    let mut answers = Vec::new();
    while !matches!(answers.last(), Some(Ok(_))) {
        answers.push(next(&mut source).await.0);
    }
    assert_eq!(answers.pop(), Some(Ok(vec![2, 8, 9])));
    // The list does not hide that a name fails.
    assert!(next(&mut source).await.0.is_err());
    table.v4("web.internal", 5, [2]);
    while !matches!(answers.last(), Some(Ok(_))) {
        answers.push(next(&mut source).await.0);
    }
    assert_eq!(answers.pop(), Some(Ok(vec![2, 8, 9])), "it works again");
    assert!(is_silent(&mut source, 100).await);
}

#[tokio::test(start_paused = true)]
async fn name_without_an_address_at_first_is_found_later() {
    let table = Table::default();
    let new = source(&table, [named("10.0.0.1:80", &[]), named("web.internal:80", &[])]);
    let mut source = new.incomplete("plimsoll.toml:3: it could not be looked up");
    assert_eq!(next(&mut source).await.0, Ok(vec![1]));
    assert!(next(&mut source).await.0.unwrap_err().starts_with("plimsoll.toml:3: "));
    assert!(next(&mut source).await.0.is_err());
    table.v4("web.internal", 5, [2]);
    let (list, seconds) = next(&mut source).await;
    assert_eq!(list, Ok(vec![1, 2]));
    assert!(seconds <= 5, "{seconds} s");
}

#[tokio::test(start_paused = true)]
async fn address_of_two_names_is_one_backend() {
    let table = Table::default();
    table.v4("web.internal", 5, [2]);
    table.v4("alias.internal", 5, [2, 3]);
    let mut source = source(&table, [named("web.internal:80", &[2]), named("alias.internal:80", &[2])]);
    assert_eq!(next(&mut source).await.0, Ok(vec![2]));
    assert_eq!(next(&mut source).await.0, Ok(vec![2, 3]));
}

#[tokio::test(start_paused = true)]
async fn found_addresses_are_told() {
    let table = Table::default();
    table.v4("web.internal", 5, [7]);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&told);
    let tell = move |name: &str, found: &[Vec<Address>; 2]| to.lock().unwrap().push(format!("{name} {found:?}"));
    let mut source = source(&table, [named("web.internal:80", &[2])]).on_found(tell);
    next(&mut source).await.0.unwrap();
    next(&mut source).await.0.unwrap();
    assert_eq!(*told.lock().unwrap(), ["web.internal:80 [[10.0.0.7:80], [10.0.0.2:80]]"]);
}
