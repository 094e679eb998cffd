//! The fields that a backend sees, by sender.

use super::*;
use crate::peer::Tls;

fn rules(x_forwarded: bool, rfc7239: bool, trusted: &str) -> Rules {
    let trusted = trusted.split_whitespace().map(|network| network.parse().unwrap()).collect();
    Rules { trusted, trusts_unix: false, x_forwarded, rfc7239, via: None }
}

fn peer(address: &str, tls: bool) -> Peer {
    let address = address.parse().unwrap();
    let tls = tls.then(|| Tls { server_name: None, client_names: Box::default(), version: "TLSv1.3", is_http2: false });
    Peer { address, local: ([10, 0, 0, 1], 8443).into(), user: None, tls, is_unnamed: false }
}

fn request(uri: &str, fields: &[(&'static str, &'static str)]) -> Request<()> {
    let mut request = Request::new(());
    *request.uri_mut() = uri.parse().unwrap();
    for (name, value) in fields {
        request.headers_mut().append(*name, HeaderValue::from_static(value));
    }
    request
}

/// The fields of a request after it was marked, sorted, without its host.
fn marked(peer: &Peer, rules: &Rules, mut request: Request<()>) -> Vec<String> {
    Marks::new(peer, rules).request(rules, &mut request);
    let mut fields: Vec<String> = request
        .headers()
        .iter()
        .filter(|(name, _)| *name != HOST)
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    fields.sort_unstable();
    fields
}

#[test]
fn a_client_is_named_by_its_connection() {
    let x_forwarded = rules(true, false, "");
    assert_eq!(
        marked(&peer("192.0.2.7:5", true), &x_forwarded, request("/", &[("host", "a.example:80")])),
        [
            "x-forwarded-for: 192.0.2.7",
            "x-forwarded-host: a.example:80",
            "x-forwarded-port: 8443",
            "x-forwarded-proto: https"
        ]
    );
    assert_eq!(
        marked(&peer("[2001:db8::7]:5", false), &x_forwarded, request("http://u@b.example/", &[("host", "a.example")])),
        [
            "x-forwarded-for: 2001:db8::7",
            "x-forwarded-host: b.example",
            "x-forwarded-port: 8443",
            "x-forwarded-proto: http"
        ]
    );
}

#[test]
fn forwarded_quotes_values_that_are_no_tokens() {
    let rfc7239 = rules(false, true, "");
    let of = |address: &str, host: &'static str| {
        marked(&peer(address, false), &rfc7239, request("/", &[("host", host)])).join("\n")
    };
    assert_eq!(of("192.0.2.7:5", "a.example"), "forwarded: for=192.0.2.7;proto=http;host=a.example");
    assert_eq!(of("192.0.2.7:5", "a.example:80"), "forwarded: for=192.0.2.7;proto=http;host=\"a.example:80\"");
    assert_eq!(of("[2001:db8::7]:5", "a"), "forwarded: for=\"[2001:db8::7]\";proto=http;host=a");
    assert_eq!(of("192.0.2.7:5", "a\";for=x"), "forwarded: for=192.0.2.7;proto=http;host=\"a\\\";for=x\"");
}

const CLAIMS: [(&str, &str); 12] = [
    ("forwarded", "for=10.1.1.1"),
    ("forwarded-for", "10.1.1.1"),
    ("forwarded_for", "10.1.1.1"),
    ("x-forwarded-for", "10.1.1.1"),
    ("x-forwarded-for", "10.1.1.2"),
    ("x_forwarded_for", "10.1.1.1"),
    ("x-forwarded_for", "10.1.1.1"),
    ("x-forwarded", "10.1.1.1"),
    ("x-forwarded-client-cert", "Hash=0"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-prefix", "/admin"),
    ("x-real-ip", "10.1.1.1"),
];

#[test]
fn nothing_that_an_untrusted_client_claims_goes_through_in_any_mode() {
    for (x_forwarded, rfc7239) in [(false, false), (true, false), (false, true), (true, true)] {
        let rules = rules(x_forwarded, rfc7239, "10.0.0.0/8");
        let all = marked(&peer("192.0.2.7:5", false), &rules, request("/", &CLAIMS));
        assert!(!all.iter().any(|field| field.contains("10.1.1") || field.contains("admin")), "{all:?}");
        assert!(!all.iter().any(|field| field.contains('_') || field.contains("cert")), "{all:?}");
        assert_eq!(all.len(), 3 * usize::from(x_forwarded) + usize::from(rfc7239), "{all:?}");
    }
}

#[test]
fn fields_of_a_trusted_proxy_are_continued() {
    let both = rules(true, true, "10.0.0.0/8");
    let all = marked(&peer("10.9.9.9:5", false), &both, request("/", &CLAIMS[..]));
    for expected in [
        "forwarded: for=10.1.1.1, for=10.9.9.9;proto=http",
        "x-forwarded-for: 10.1.1.1, 10.1.1.2, 10.9.9.9",
        "x-forwarded-port: 8443",
        "x-forwarded-proto: https",
        "x-forwarded-prefix: /admin",
        "x-real-ip: 10.1.1.1",
    ] {
        assert!(all.iter().any(|field| field == expected), "{expected}: {all:?}");
    }
}

#[test]
fn underscores_are_dropped_from_a_trusted_proxy_too_unless_nothing_is_sent() {
    let claims = [("x_real_ip", "10.1.1.1"), ("x-forwarded_proto", "https"), ("forwarded_", "for=10.1.1.1")];
    for (x_forwarded, rfc7239) in [(true, false), (false, true), (true, true)] {
        let rules = rules(x_forwarded, rfc7239, "10.0.0.0/8");
        let all = marked(&peer("10.9.9.9:5", false), &rules, request("/", &claims));
        assert!(!all.iter().any(|field| field.contains('_')), "{all:?}");
    }
    let none = rules(false, false, "10.0.0.0/8");
    assert_eq!(marked(&peer("10.9.9.9:5", false), &none, request("/", &claims)).len(), claims.len());
}

#[test]
fn a_form_that_is_not_sent_is_not_believed_of_a_trusted_proxy_either() {
    let one = rules(true, false, "10.0.0.0/8");
    let all = marked(&peer("10.9.9.9:5", false), &one, request("/", &[("forwarded", "for=10.1.1.1")]));
    assert_eq!(all, ["x-forwarded-for: 10.9.9.9", "x-forwarded-port: 8443", "x-forwarded-proto: http"]);
    // Where nothing is sent at all, it goes through.
    let none = rules(false, false, "10.0.0.0/8");
    let all = marked(&peer("10.9.9.9:5", false), &none, request("/", &[("forwarded", "for=10.1.1.1")]));
    assert_eq!(all, ["forwarded: for=10.1.1.1"]);
}

#[test]
fn via_names_each_hop_with_the_version_that_a_message_came_in() {
    let mut rules = rules(false, false, "");
    rules.via = Some(Via::new("edge-1"));
    let mut old = request("/", &[("via", "1.0 first")]);
    *old.version_mut() = Version::HTTP_10;
    assert_eq!(marked(&peer("192.0.2.7:5", false), &rules, old), ["via: 1.0 edge-1", "via: 1.0 first"]);
    let mut answer = HeaderMap::new();
    rules.mark_response(&mut answer, Version::HTTP_2);
    assert_eq!(answer[VIA], "2.0 edge-1");
}

#[test]
fn the_host_is_rewritten_where_the_request_has_it() {
    let rewrite = HostRewrite::new(&"web.internal:81".parse().unwrap());
    let mut plain = request("/a?b", &[("host", "a.example")]);
    rewrite.apply(&mut plain);
    assert_eq!(
        (plain.uri().to_string().as_str(), &plain.headers()[HOST]),
        ("/a?b", &HeaderValue::from_static("web.internal:81"))
    );
    let mut absolute = request("http://a.example/a?b", &[("host", "a.example")]);
    rewrite.apply(&mut absolute);
    assert_eq!(absolute.uri(), "http://web.internal:81/a?b");
    assert!(!absolute.headers().contains_key(HOST));
}

#[test]
fn scheme_of_a_client_is_known_from_trusted_proxies_only() {
    let says = |rules: &Rules, address: &str, fields: &[(&'static str, &'static str)]| {
        Marks::new(&peer(address, false), rules).says_https(request("/", fields).headers())
    };
    let proto = |value| [("x-forwarded-proto", value)];
    let x_forwarded = rules(true, false, "10.0.0.0/8");
    for (value, expected) in
        [("https", Some(true)), ("HTTPS, http", Some(true)), ("http", Some(false)), ("wss", None), ("", None)]
    {
        assert_eq!(says(&x_forwarded, "10.0.0.9:1", &proto(value)), expected, "{value}");
    }
    assert_eq!(says(&x_forwarded, "192.0.2.7:1", &proto("https")), None);
    assert_eq!(says(&x_forwarded, "10.0.0.9:1", &[("x_forwarded_proto", "https")]), None);
    let forwarded = [("forwarded", "for=1.2.3.4;Proto=\"https\";host=a, for=10.0.0.1;proto=http")];
    let rfc7239 = rules(false, true, "10.0.0.0/8");
    assert_eq!(says(&rfc7239, "10.0.0.9:1", &forwarded), Some(true));
    assert_eq!(says(&rfc7239, "10.0.0.9:1", &proto("https")), None, "it may be one of a stranger");
    assert_eq!(says(&x_forwarded, "10.0.0.9:1", &forwarded), None);
    assert_eq!(says(&rfc7239, "10.0.0.9:1", &[("forwarded", "for=1.2.3.4")]), None);
}
