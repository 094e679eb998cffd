//! Changes of header fields by a route; `crate::route` makes them.
//!
//! A rule cannot touch fields that others trust: those that name the client, its
//! customer or its criticality, those of a connection and of framing, and those in which proxies
//! report load. Backends and clients believe these, and other settings decide on them. A message
//! names the setting.

use http::{HeaderName, HeaderValue};
use plimsoll_config::{Checker, Codec, DeValue, Flaw, List, Reading, Spanned, kind, quoted, table};
use plimsoll_wire::hop::Claim;

use super::criticality::FIELD_NAME;

table! {
    /// The changes of a route to the fields of its requests, or of its responses.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct HeaderRules {
        /// Fields with one value each, in place of all lines of that name.
        pub set: Vec<(HeaderName, HeaderValue)> = Vec::new(), value_as(Values);
        /// Further lines.
        pub add: Vec<(HeaderName, HeaderValue)> = Vec::new(), value_as(Values);
        /// Fields that are removed.
        pub remove: Vec<HeaderName> = Vec::new(), value_as(List(FIELD_NAME));
    }
    NEEDS = "set = { \"x-env\" = \"prod\" }";
}

/// Fields as a table: `{ "x-env" = "prod" }`.
struct Values;

impl Values {
    fn value(value: &DeValue<'_>) -> Result<HeaderValue, Flaw> {
        let DeValue::String(text) = value else {
            let reason = format!("expected a value in quotes, found {}", kind(value));
            return Err(Flaw::new(reason, "write text in quotes, such as \"prod\""));
        };
        let help = match &**text {
            "" => "list the field in remove, or write a value",
            text if text.contains(['\r', '\n']) => "write one line: a line break would begin another field",
            text if text.contains('$')
                && text.trim() == text
                && text.is_ascii()
                && HeaderValue::from_str(text).is_ok() =>
            {
                return variable(text);
            }
            text => match HeaderValue::from_str(text) {
                Ok(value) if text.is_ascii() && text.trim() == text => return Ok(value),
                _ => "write visible ASCII characters, without blanks around them",
            },
        };
        Err(Flaw::new(format!("{text:?} is not the value of a header"), help))
    }
}

/// The value, unless it is a variable of nginx: those are not known, and would be sent as they are.
fn variable(text: &str) -> Result<HeaderValue, Flaw> {
    const VARIABLES: [&str; 10] = [
        "$remote_addr",
        "$proxy_add_x_forwarded_for",
        "$host",
        "$http_",
        "$scheme",
        "$request_id",
        "$server_port",
        "$server_name",
        "$request_uri",
        "$ssl_",
    ];
    if VARIABLES.iter().any(|variable| text.contains(variable)) {
        let help = "write a fixed text: the client, host and scheme are in X-Forwarded-* already";
        return Err(Flaw::new(format!("\"{text}\" has a variable, and values are fixed"), help));
    }
    Ok(HeaderValue::from_str(text).expect("it was tried before"))
}

impl Codec<Vec<(HeaderName, HeaderValue)>> for Values {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Vec<(HeaderName, HeaderValue)>> {
        let DeValue::Table(table) = value.get_ref() else {
            let reason = format!("expected a table, found {}", kind(value.get_ref()));
            reading.problem(reason, "write it as { \"x-env\" = \"prod\" }");
            return None;
        };
        let mut fields = Vec::new();
        for (key, item) in table.iter() {
            reading.within(&format!(".{}", key.get_ref()), key.span(), |reading| {
                let key: DeValue<'_> = DeValue::String(key.get_ref().clone());
                let name = reading.take((FIELD_NAME.read)(&key));
                let value = reading.take(Self::value(item.get_ref()));
                fields.extend(name.zip(value));
            });
        }
        fields.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        Some(fields)
    }

    fn print(&self, fields: &Vec<(HeaderName, HeaderValue)>) -> Option<String> {
        let print = |(name, value): &(HeaderName, HeaderValue)| {
            format!("{} = {}", quoted(name), quoted(value.to_str().unwrap_or_default()))
        };
        let printed: Vec<String> = fields.iter().map(print).collect();
        (!printed.is_empty()).then(|| format!("{{ {} }}", printed.join(", ")))
    }
}

impl HeaderRules {
    /// The names, each with its place in the table.
    fn names(&self) -> impl Iterator<Item = (String, &HeaderName)> {
        let set = self.set.iter().map(|(name, _)| (format!("set.{name}"), name));
        let add = self.add.iter().map(|(name, _)| (format!("add.{name}"), name));
        let remove = self.remove.iter().enumerate().map(|(k, name)| (format!("remove[{k}]"), name));
        set.chain(add).chain(remove)
    }

    /// Reports fields that are not a route's to change, and contradictions; the table is at `path`.
    /// `claims` are the fields that listeners of the file believe.
    pub(super) fn check(&self, path: &str, claims: &[&HeaderName], checker: &mut Checker<'_>) {
        if self.names().next().is_none() && checker.is_readable(path) {
            let help = "add set = { \"x-env\" = \"prod\" }, or remove it";
            checker.report(path, "changes no field", help);
        }
        let mut known: Vec<(String, &HeaderName)> = Vec::new();
        for (place, name) in self.names() {
            let at = format!("{path}.{place}");
            if let Some(help) = reserved(name) {
                checker.report(at, format!("\"{name}\" is not a route's to change"), help);
            } else if claims.iter().any(|claim| is_same(claim.as_str(), name.as_str())) {
                let reason = format!("\"{name}\" is a field that a listener believes, and not a route's to change");
                checker.report(at, reason, "remove it: customer, cohort_header and priority decide on such fields");
            } else if let Some((first, _)) = known.iter().find(|(_, other)| *other == name) {
                checker.report(at, format!("\"{name}\" is in {first} already"), "remove one of them");
            } else {
                known.push((place, name));
            }
        }
    }
}

/// Whether servers may take one name for the other: those that hand fields on as variables make no
/// difference between underscores and dashes.
fn is_same(a: &str, b: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte };
    a.bytes().map(plain).eq(b.bytes().map(plain))
}

/// The setting to use in place of a rule on this field; `None` if a rule may change it.
fn reserved(name: &HeaderName) -> Option<&'static str> {
    const CONNECTION: &str = "remove it: it concerns one connection, and the proxy writes its own";
    const HANDSHAKE: &str = "remove it: it belongs to the handshake of a WebSocket";
    const LOAD: &str = "remove it: backends and proxies report load and shed requests by it";
    const ATTEMPT: &str = "remove it: the proxy counts attempts, see [clusters.NAME.retry]";
    const TIME: &str = "write request_timeout in the route";
    if Claim::of(name).is_some() {
        return Some("set forwarded and trusted_proxies in [[listeners]]: they decide how backends learn the client");
    }
    let name = name.as_str().replace('_', "-");
    Some(match &*name {
        "host" => "write host_rewrite = \"web.internal\" in the route",
        "via" => "set via in [[listeners]]",
        "x-criticality" | "baggage" => "write criticality = \"critical\" in the route",
        "traceparent" | "tracestate" => "remove it: [tracing] decides on traces",
        "x-request-id" => "remove it: the sender names its request, and `plimsoll explain` finds it by that id",
        "x-envoy-attempt-count" | "grpc-previous-rpc-attempts" => ATTEMPT,
        "grpc-timeout" | "x-envoy-expected-rq-timeout-ms" => TIME,
        "connection"
        | "keep-alive"
        | "proxy-connection"
        | "proxy-authenticate"
        | "proxy-authorization"
        | "te"
        | "trailer"
        | "transfer-encoding"
        | "content-length"
        | "upgrade"
        | "expect"
        | "http2-settings" => CONNECTION,
        "sec-websocket-key" | "sec-websocket-accept" | "sec-websocket-version" => HANDSHAKE,
        "endpoint-load-metrics"
        | "endpoint-load-metrics-bin"
        | "endpoint-load-metrics-format"
        | "x-envoy-ratelimited"
        | "x-envoy-overloaded"
        | "grpc-status"
        | "grpc-message"
        | "grpc-status-details-bin"
        | "grpc-retry-pushback-ms" => LOAD,
        name if name.starts_with("x-plimsoll-") => LOAD,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_trust_are_reserved_in_every_spelling() {
        for name in [
            "host",
            "x-forwarded-for",
            "x_forwarded_for",
            "x-forwarded-anything",
            "forwarded",
            "x-real-ip",
            "x_real_ip",
            "via",
            "x-criticality",
            "x_criticality",
            "baggage",
            "traceparent",
            "x-request-id",
            "x_request_id",
            "connection",
            "transfer-encoding",
            "content_length",
            "te",
            "x-plimsoll-shed",
            "x-plimsoll-probe-key",
            "endpoint-load-metrics-bin",
            "grpc-timeout",
        ] {
            assert!(reserved(&HeaderName::from_static(name)).is_some(), "{name}");
        }
        for name in ["authorization", "cookie", "accept-encoding", "x-env", "server", "set-cookie", "x-forward", "vias"]
        {
            assert!(reserved(&HeaderName::from_static(name)).is_none(), "{name}");
        }
    }

    #[test]
    fn value_is_one_line_of_fixed_text() {
        let read = |text: &str| Values::value(&DeValue::String(text.to_owned().into()));
        for text in ["prod", "max-age=31536000; includeSubDomains", "costs $5", "a\tb"] {
            assert_eq!(read(text).unwrap(), text);
        }
        for (text, help) in [
            ("", "list the field in remove"),
            ("a\r\nx-evil: 1", "begin another field"),
            ("a\nb", "begin another field"),
            (" a", "without blanks"),
            ("é", "visible ASCII"),
            ("$remote_addr", "fixed text"),
            ("for=$host", "fixed text"),
        ] {
            let flaw = read(text).unwrap_err();
            assert!(flaw.help.contains(help), "{text:?}: {}", flaw.help);
        }
    }
}
