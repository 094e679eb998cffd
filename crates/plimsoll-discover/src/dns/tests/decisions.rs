//! The meaning of answers.

use super::*;

const NAME: &str = "web.internal:80";

#[tokio::test(start_paused = true)]
async fn name_is_its_addresses_of_both_families_in_order() {
    let table = Table::default();
    table.v4("web.internal", 60, [3, 1, 3]);
    table.set("web.internal", RecordType::AAAA, v6(20, [1]));
    let mut source = table.host(NAME);
    let found = source.ask().await.unwrap();
    let addresses: Vec<_> = found.endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect();
    assert_eq!(addresses, ["10.0.0.1:80", "10.0.0.3:80", "[fd00::1]:80"]);
    assert_eq!(found.ttl, Some(seconds(20)));
    assert!(found.endpoints.iter().all(|endpoint| endpoint.authority.as_ref().unwrap() == NAME));
    // A server that rotates its records changes nothing.
    table.v4("web.internal", 60, [1, 3]);
    assert_eq!(source.ask().await.unwrap(), found);
}

#[tokio::test(start_paused = true)]
async fn address_with_a_port_is_its_own_answer() {
    for (name, address) in [("10.0.0.7:80", "10.0.0.7:80"), ("[fd00::7]:80", "[fd00::7]:80")] {
        let table = Table::default();
        let mut source = table.host(name);
        assert_eq!(shown(source.next().await), Ok(vec![address.to_owned()]));
        assert!(source.next().await.is_none());
        assert!(table.asked().is_empty());
    }
}

#[test]
fn text_that_is_no_name_is_an_error_that_shows_one() {
    for text in ["web", "web:", "web:0", "web:99999", ":80", "10.0.0:80", "::1", "we b:80", "a..b:80", "wéb:80", ".:80"]
    {
        let error = crate::dns::Dns::new(text).unwrap_err().to_string();
        assert_eq!(error, format!("`{text}` is no host name or IP address with a port, such as web.internal:8080"));
    }
    assert!(crate::dns::Srv::new("_http._tcp.web:80").is_err());
    assert!(crate::dns::Srv::new("_http._tcp.web.service.consul").is_ok());
}

#[tokio::test(start_paused = true)]
async fn no_records_are_an_empty_list_and_errors_are_none() {
    let table = Table::default();
    let mut source = table.host(NAME);
    assert_eq!(once(&mut source).await, Ok(vec![]));
    for kind in [RecordType::A, RecordType::AAAA] {
        table.set("web.internal", kind, Reply::NoData(300));
    }
    let found = source.ask().await.unwrap();
    assert_eq!((found.endpoints.len(), found.ttl), (0, Some(seconds(5))), "a cluster without backends does not wait");
    let truncated = {
        let mut message = message(&fqdn("web.internal"), v4(60, [1]));
        message.metadata.truncation = true;
        Reply::Message(message)
    };
    let failures = [
        (Reply::Code(ResponseCode::ServFail), "the name server answered Server Failure"),
        (Reply::Code(ResponseCode::Refused), "the name server answered Query Refused"),
        (Reply::Fail(Failure::Malformed("no".to_owned())), "malformed: no"),
        (Reply::Never, "no answer within 10 s"),
        (truncated, "truncated"),
    ];
    for (reply, expected) in failures {
        for kind in [RecordType::A, RecordType::AAAA] {
            table.set("web.internal", kind, reply.clone());
        }
        let error = once(&mut source).await.unwrap_err();
        assert!(error.starts_with("web.internal:80: ") && error.contains(expected), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn family_that_fails_keeps_its_addresses() {
    let both = ["10.0.0.1:80", "[fd00::1]:80"];
    for failure in [Reply::Code(ResponseCode::ServFail), Reply::Fail(Failure::Slow(seconds(5)))] {
        let table = Table::default();
        table.v4("web.internal", 60, [1]);
        table.set("web.internal", RecordType::AAAA, v6(60, [1]));
        let mut source = table.host(NAME);
        assert_eq!(once(&mut source).await.unwrap(), both);
        table.set("web.internal", RecordType::AAAA, failure.clone());
        let found = source.ask().await.unwrap();
        assert_eq!(found.endpoints.len(), 2, "{failure:?}");
        assert!(found.ttl <= Some(seconds(5)), "it is asked again soon");
        // The other way round, and the other family changes meanwhile.
        table.set("web.internal", RecordType::AAAA, v6(60, [2]));
        table.set("web.internal", RecordType::A, failure.clone());
        assert_eq!(once(&mut source).await.unwrap(), ["10.0.0.1:80", "[fd00::2]:80"]);
        // Its records are gone: that is an answer.
        table.set("web.internal", RecordType::A, Reply::NoData(60));
        assert_eq!(once(&mut source).await.unwrap(), ["[fd00::2]:80"]);
        // Nothing is kept of it by now.
        table.set("web.internal", RecordType::A, failure);
        assert_eq!(once(&mut source).await.unwrap(), ["[fd00::2]:80"]);
    }
}

#[tokio::test(start_paused = true)]
async fn family_that_never_answers_breaks_and_delays_nothing() {
    let table = Table::default();
    table.v4("web.internal", 60, [1]);
    for broken in [Reply::Code(ResponseCode::NotImp), Reply::Never] {
        table.set("web.internal", RecordType::AAAA, broken);
        let begun = tokio::time::Instant::now();
        let found = table.host(NAME).ask().await.unwrap();
        assert_eq!((found.endpoints.len(), found.ttl), (1, Some(seconds(60))));
        assert!(begun.elapsed() <= seconds(1));
    }
    // Without an address nobody knows whether there are some.
    table.set("web.internal", RecordType::A, Reply::NoData(60));
    table.set("web.internal", RecordType::AAAA, Reply::Code(ResponseCode::ServFail));
    assert!(once(&mut table.host(NAME)).await.is_err());
    // A name that does not exist has none, whatever the other family says.
    table.set("web.internal", RecordType::A, Reply::NxDomain);
    assert_eq!(once(&mut table.host(NAME)).await, Ok(vec![]));
    table.set("web.internal", RecordType::AAAA, Reply::Never);
    let begun = tokio::time::Instant::now();
    assert_eq!(once(&mut table.host(NAME)).await, Ok(vec![]));
    assert!(begun.elapsed() <= seconds(1));
}

#[tokio::test(start_paused = true)]
async fn search_list_stops_at_the_first_name_that_exists() {
    let table = Table::default();
    table.local("search a.example b.example\noptions ndots:2\nnameserver 10.0.0.10\n");
    table.v4("web.internal.b.example", 60, [2]);
    table.v4("web.internal", 60, [3]);
    assert_eq!(once(&mut table.host(NAME)).await.unwrap(), ["10.0.0.2:80"]);
    assert_eq!(
        table.asked(),
        [
            "web.internal.a.example. A",
            "web.internal.a.example. AAAA",
            "web.internal.b.example. A",
            "web.internal.b.example. AAAA"
        ]
    );
    assert_eq!(once(&mut table.host("web.internal.:80")).await.unwrap(), ["10.0.0.3:80"]);
    assert_eq!(table.asked().len(), 2);
    // The first name has no address: that of the next is meant.
    for kind in [RecordType::A, RecordType::AAAA] {
        table.set("web.internal.b.example", kind, Reply::NoData(60));
    }
    assert_eq!(once(&mut table.host(NAME)).await.unwrap(), ["10.0.0.3:80"]);
}

#[tokio::test(start_paused = true)]
async fn search_list_ends_with_an_error_at_a_server_failure() {
    let table = Table::default();
    table.local("search a.example\noptions ndots:5\n");
    table.v4("web.internal", 60, [9]);
    let mut source = table.host(NAME);
    for kind in [RecordType::A, RecordType::AAAA] {
        table.set("web.internal.a.example", kind, Reply::Code(ResponseCode::ServFail));
    }
    assert!(once(&mut source).await.is_err(), "the next name may be another service");
    table.srv("_http._tcp.web", &[(1, 1, "a.internal")]);
    table.set("_http._tcp.web.a.example", RecordType::SRV, Reply::Code(ResponseCode::Refused));
    assert!(once(&mut table.service("_http._tcp.web")).await.is_err());
    // One family is enough to know that the name does not exist.
    table.set("web.internal.a.example", RecordType::A, Reply::NxDomain);
    assert_eq!(once(&mut source).await.unwrap(), ["10.0.0.9:80"]);
}

#[tokio::test(start_paused = true)]
async fn hosts_file_comes_before_the_servers() {
    let table = Table::default();
    table.0.lock().unwrap().local.hosts = "10.0.0.5 web.internal\n".to_owned();
    let found = table.host(NAME).ask().await.unwrap();
    assert_eq!((found.endpoints[0].address.to_string(), found.ttl), ("10.0.0.5:80".to_owned(), Some(seconds(5))));
    assert_eq!(once(&mut table.host("localhost:1")).await.unwrap(), ["127.0.0.1:1", "[::1]:1"]);
    assert!(table.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn aliases_are_followed_with_their_ttl_and_bounded() {
    let table = Table::default();
    let whole = {
        // The record comes first, and a stranger is beside it.
        let mut message = message(&fqdn("c.internal"), v4(60, [1]));
        message.add_answers([alias("b.internal", "c.internal", 9), alias("web.internal", "b.internal", 40)]);
        message.add_answer(Record::from_rdata(fqdn("other.internal"), 1, RData::from(ip(66))));
        Reply::Message(message)
    };
    table.set("web.internal", RecordType::A, whole);
    let found = table.host(NAME).ask().await.unwrap();
    assert_eq!((found.endpoints.len(), found.ttl), (1, Some(seconds(9))));
    // A server that does not follow them itself.
    let mut first = Message::response(1, OpCode::Query);
    first.add_answer(alias("web.internal", "elsewhere.internal", 7));
    table.set("web.internal", RecordType::A, Reply::Message(first));
    table.v4("elsewhere.internal", 60, [2]);
    let found = table.host(NAME).ask().await.unwrap();
    assert_eq!((found.endpoints[0].address.to_string(), found.ttl), ("10.0.0.2:80".to_owned(), Some(seconds(7))));
    // A circle in one message, and one in several.
    let mut circle = Message::response(1, OpCode::Query);
    circle.add_answers([alias("web.internal", "b.internal", 9), alias("b.internal", "web.internal", 9)]);
    let mut there = Message::response(1, OpCode::Query);
    there.add_answer(alias("web.internal", "back.internal", 9));
    let mut back = Message::response(1, OpCode::Query);
    back.add_answer(alias("back.internal", "web.internal", 9));
    for (first, second) in [(circle, None), (there, Some(back))] {
        for kind in [RecordType::A, RecordType::AAAA] {
            table.set("web.internal", kind, Reply::Message(first.clone()));
            if let Some(second) = &second {
                table.set("back.internal", kind, Reply::Message(second.clone()));
            }
        }
        let error = once(&mut table.host(NAME)).await.unwrap_err();
        assert!(error.contains("aliases in a row"), "{error}");
    }
}

/// Each address with its weight, and the host of its requests.
async fn weighted(table: &Table) -> Vec<(String, f64, String)> {
    let found = table.service("_http._tcp.web").ask().await.unwrap();
    let shown = |endpoint: &Endpoint| {
        let authority = endpoint.authority.as_ref().unwrap().to_string();
        (endpoint.address.to_string(), endpoint.weight.as_f64(), authority)
    };
    found.endpoints.iter().map(shown).collect()
}

#[tokio::test(start_paused = true)]
async fn srv_weights_are_those_of_backends_divided_among_addresses() {
    let table = Table::default();
    table.srv("_http._tcp.web", &[(1, 1, "a.internal"), (1, 4, "b.internal"), (1, 0, "c.internal")]);
    table.v4("a.internal", 60, [1]);
    table.v4("b.internal", 60, [2]);
    table.set("b.internal", RecordType::AAAA, v6(60, [2]));
    table.v4("c.internal", 60, [3]);
    let row = |address: &str, weight, authority: &str| (address.to_owned(), weight, authority.to_owned());
    let (a, b) = (row("10.0.0.1:8080", 1.0, "a.internal:8080"), row("10.0.0.2:8080", 2.0, "b.internal:8080"));
    let (c, b6) = (row("10.0.0.3:8080", 0.001, "c.internal:8080"), row("[fd00::2]:8080", 2.0, "b.internal:8080"));
    assert_eq!(weighted(&table).await, [a, b, c, b6]);
    // Beyond the range of weights they shrink together. Two records for one machine add up.
    table.srv("_http._tcp.web", &[(1, 50_000, "a.internal"), (1, 25_000, "c.internal"), (1, 5_000, "d.internal")]);
    table.v4("d.internal", 60, [3]);
    let weights: Vec<f64> = weighted(&table).await.iter().map(|(_, weight, _)| *weight).collect();
    assert_eq!(weights, [1000.0, 600.0]);
    table.srv("_http._tcp.web", &[(1, 0, "a.internal"), (1, 0, "c.internal")]);
    assert!(weighted(&table).await.iter().all(|(_, weight, _)| *weight == 1.0));
}

#[tokio::test(start_paused = true)]
async fn srv_uses_the_first_priority_that_has_an_address() {
    let table = Table::default();
    table.srv("_http._tcp.web", &[(20, 1, "b.internal"), (10, 1, "a.internal"), (30, 1, "c.internal")]);
    table.v4("a.internal", 60, [1]);
    table.v4("b.internal", 60, [2]);
    table.v4("c.internal", 60, [3]);
    let mut source = table.service("_http._tcp.web");
    assert_eq!(once(&mut source).await.unwrap(), ["10.0.0.1:8080"]);
    assert_eq!(table.asked().len(), 3, "the others are not looked up");
    table.set("a.internal", RecordType::A, Reply::NxDomain);
    assert_eq!(once(&mut source).await.unwrap(), ["10.0.0.2:8080"]);
    // A failure is no reason to move to the next one.
    table.set("a.internal", RecordType::A, Reply::Code(ResponseCode::ServFail));
    table.set("a.internal", RecordType::AAAA, Reply::Code(ResponseCode::ServFail));
    let error = once(&mut table.service("_http._tcp.web")).await.unwrap_err();
    assert!(error.contains("target a.internal.: the name server answered"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn srv_without_records_or_with_the_root_as_target_is_empty() {
    let table = Table::default();
    let mut source = table.service("_http._tcp.web");
    assert_eq!(once(&mut source).await, Ok(vec![]));
    table.srv("_http._tcp.web", &[(0, 0, ".")]);
    assert_eq!(once(&mut source).await, Ok(vec![]));
    table.set("_http._tcp.web", RecordType::SRV, Reply::Code(ResponseCode::ServFail));
    assert!(once(&mut source).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn srv_target_that_fails_keeps_its_addresses_and_a_new_one_is_left_out() {
    let table = Table::default();
    table.srv("_http._tcp.web", &[(1, 1, "a.internal"), (1, 1, "b.internal")]);
    table.v4("a.internal", 60, [1]);
    table.v4("b.internal", 60, [2]);
    let mut source = table.service("_http._tcp.web");
    assert_eq!(once(&mut source).await.unwrap().len(), 2);
    for kind in [RecordType::A, RecordType::AAAA] {
        table.set("b.internal", kind, Reply::Code(ResponseCode::ServFail));
        table.set("new.internal", kind, Reply::Code(ResponseCode::ServFail));
    }
    table.srv("_http._tcp.web", &[(1, 1, "a.internal"), (1, 1, "b.internal"), (1, 1, "new.internal")]);
    for _ in 0..3 {
        assert_eq!(once(&mut source).await.unwrap(), ["10.0.0.1:8080", "10.0.0.2:8080"]);
    }
    // Its record is missing once, because the answer came in part: it is known still.
    table.srv("_http._tcp.web", &[(1, 1, "a.internal")]);
    assert_eq!(once(&mut source).await.unwrap(), ["10.0.0.1:8080"]);
    table.srv("_http._tcp.web", &[(1, 1, "a.internal"), (1, 1, "b.internal")]);
    assert_eq!(once(&mut source).await.unwrap(), ["10.0.0.1:8080", "10.0.0.2:8080"]);
    // It does not exist any more.
    table.set("b.internal", RecordType::A, Reply::NxDomain);
    assert_eq!(once(&mut source).await.unwrap(), ["10.0.0.1:8080"]);
}

#[tokio::test(start_paused = true)]
async fn srv_behind_an_alias_takes_the_addresses_that_come_with_it() {
    let table = Table::default();
    let mut message = Message::response(1, OpCode::Query);
    message.add_answer(alias("_http._tcp.web", "_http._tcp.real", 50));
    message.add_answer(Record::from_rdata(fqdn("_http._tcp.real"), 40, srv(1, 1, "a.internal")));
    message.add_additional(Record::from_rdata(fqdn("a.internal"), 30, RData::from(ip(1))));
    message.add_additional(Record::from_rdata(fqdn("b.internal"), 3, RData::from(ip(66))));
    table.set("_http._tcp.web", RecordType::SRV, Reply::Message(message));
    let found = table.service("_http._tcp.web").ask().await.unwrap();
    assert_eq!((found.endpoints[0].address.to_string(), found.ttl), ("10.0.0.1:8080".to_owned(), Some(seconds(30))));
    assert_eq!((found.endpoints.len(), table.asked().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn large_service_is_looked_up_side_by_side_and_bounded() {
    let table = Table::default();
    let names: Vec<String> = (0..100).map(|i| format!("t{i}.internal")).collect();
    table.srv("_http._tcp.web", &names.iter().map(|name| (1, 1, &**name)).collect::<Vec<_>>());
    for (i, name) in (0..).zip(&names) {
        table.v4(name, 60, [i]);
    }
    assert_eq!(once(&mut table.service("_http._tcp.web")).await.unwrap().len(), 100);
    for (i, name) in (0..).zip(&names) {
        let addresses = (0..101_u8).map(|j| (RData::from(IpAddr::from([10, 1, i, j])), 60));
        table.set(name, RecordType::A, Reply::Records(addresses.collect()));
    }
    let error = once(&mut table.service("_http._tcp.web")).await.unwrap_err();
    assert!(error.contains("more than 10000 addresses"), "{error}");
}
