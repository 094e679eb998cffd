//! Conditions of routes on header fields, query parameters and cookies.
//!
//! A condition is an exact value, `true` for any value, or `false` for none at all. Regular
//! expressions are left out on purpose: a route is found by lookups, in a time that a client cannot
//! stretch, and `check` can compare two routes. `crate::route` says how requests are read.

use http::HeaderName;
use plimsoll_config::{Codec, DeValue, Flaw, Reading, Spanned, kind, quoted};

/// The longest name and the longest value of a condition, in bytes. A lookup decodes names and
/// values of a request into buffers of this length.
pub(crate) const MAX_TEXT: usize = 512;

/// A condition on one field, parameter or cookie.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition {
    /// The name; that of a field is in lower case.
    pub name: String,
    /// The values that meet it.
    pub wanted: Wanted,
}

/// The values that meet a condition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// This one.
    Value(String),
    /// Any.
    Present,
    /// None: the name must not occur.
    Absent,
}

impl Condition {
    /// Whether each request that meets `other` meets this condition, too.
    pub(super) fn is_implied_by(&self, other: &Self) -> bool {
        let is_wider = self.wanted == Wanted::Present && matches!(other.wanted, Wanted::Value(_));
        self.name == other.name && (self.wanted == other.wanted || is_wider)
    }
}

/// Conditions as a table: `{ "x-beta" = "1", "x-debug" = true, "x-old" = false }`.
pub(super) struct Conditions {
    /// The table, as an example.
    example: &'static str,
    /// The name as it is kept.
    name: fn(&str) -> Result<String, Flaw>,
    /// Whether a request can have this value.
    is_value: fn(&str) -> bool,
    /// The form of a value.
    help: &'static str,
}

/// Conditions on header fields.
pub(super) const HEADERS: Conditions = Conditions {
    example: "headers = { \"x-beta\" = \"1\" }",
    name: header_name,
    is_value: |value| !value.is_empty() && value.trim() == value && value.bytes().all(is_field_byte),
    help: "write visible ASCII characters, true for any value, or false for no such field",
};

/// Conditions on parameters of the query.
pub(super) const QUERY: Conditions = Conditions {
    example: "query = { version = \"2\" }",
    name: |name| {
        let help = "write the name of a parameter without escapes, such as \"version\"";
        if name.is_empty() { Err(Flaw::new("\"\" is not the name of a parameter", help)) } else { Ok(name.to_owned()) }
    },
    is_value: |_| true,
    help: "shorten it",
};

/// Conditions on cookies.
pub(super) const COOKIES: Conditions = Conditions {
    example: "cookies = { canary = \"yes\" }",
    name: |name| {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            let help = "write a name such as \"canary\"";
            return Err(Flaw::new(format!("\"{name}\" is not the name of a cookie"), help));
        }
        Ok(name.to_owned())
    },
    is_value: |value| value.trim() == value && value.bytes().all(|byte| is_field_byte(byte) && byte != b';'),
    help: "write visible ASCII characters without \";\", true for any value, or false for no such cookie",
};

fn is_field_byte(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic()
}

/// The name of a field by which a route can be chosen.
fn header_name(written: &str) -> Result<String, Flaw> {
    let Ok(name) = HeaderName::from_bytes(written.as_bytes()) else {
        let reason = format!("\"{written}\" is not the name of a header");
        return Err(Flaw::new(reason, "write one such as \"x-beta\""));
    };
    let flaw = |reason: &str, help: &str| Err(Flaw::new(format!("\"{name}\" {reason}"), help));
    match name.as_str() {
        "host" => flaw("is matched by host", "write host = \"example.com\" in the route"),
        "cookie" => flaw("is matched by cookies", "write cookies = { canary = \"yes\" } in the route"),
        "connection" | "keep-alive" | "proxy-connection" | "te" | "trailer" | "transfer-encoding" | "upgrade"
        | "expect" | "http2-settings" | "content-length" => flaw(
            "concerns one connection, and HTTP/1 and HTTP/2 differ in it",
            "match a field that is the same in both, or remove it",
        ),
        _ => Ok(name.as_str().to_owned()),
    }
}

impl Conditions {
    fn wanted(&self, value: &DeValue<'_>) -> Result<Wanted, Flaw> {
        match value {
            DeValue::Boolean(true) => Ok(Wanted::Present),
            DeValue::Boolean(false) => Ok(Wanted::Absent),
            DeValue::String(text) if text.len() > MAX_TEXT => {
                Err(Flaw::new(format!("is longer than {MAX_TEXT} bytes"), "shorten it"))
            }
            DeValue::String(text) if (self.is_value)(text) => Ok(Wanted::Value(text.to_string())),
            DeValue::String(text) => Err(Flaw::new(format!("no request has the value \"{text}\""), self.help)),
            DeValue::Integer(number) => {
                let reason = format!("expected a value in quotes, found the number {number}");
                Err(Flaw::new(reason, format!("write \"{number}\"")))
            }
            other => {
                let help = "write a value in quotes, true for any value, or false for none at all";
                Err(Flaw::new(format!("expected a value in quotes, found {}", kind(other)), help))
            }
        }
    }
}

impl Codec<Vec<Condition>> for Conditions {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Vec<Condition>> {
        let DeValue::Table(table) = value.get_ref() else {
            let reason = format!("expected a table, found {}", kind(value.get_ref()));
            reading.problem(reason, format!("write it as {}", self.example));
            return None;
        };
        let mut conditions: Vec<Condition> = Vec::new();
        for (key, item) in table.iter() {
            reading.within(&format!(".{}", key.get_ref()), key.span(), |reading| {
                let name = match (self.name)(key.get_ref()) {
                    Ok(name) if name.len() > MAX_TEXT => {
                        Err(Flaw::new(format!("is longer than {MAX_TEXT} bytes"), "shorten it"))
                    }
                    name => name,
                };
                let (Some(name), Some(wanted)) = (reading.take(name), reading.take(self.wanted(item.get_ref()))) else {
                    return;
                };
                if conditions.iter().any(|known| known.name == name) {
                    let reason = format!("\"{name}\" is in the table twice, and no request meets both");
                    return reading.problem(reason, "remove one of them: capitals make no difference");
                }
                conditions.push(Condition { name, wanted });
            });
        }
        conditions.sort_unstable();
        Some(conditions)
    }

    fn print(&self, conditions: &Vec<Condition>) -> Option<String> {
        let print = |condition: &Condition| {
            let wanted = match &condition.wanted {
                Wanted::Value(value) => quoted(value),
                Wanted::Present => "true".to_owned(),
                Wanted::Absent => "false".to_owned(),
            };
            format!("{} = {wanted}", quoted(&condition.name))
        };
        let printed: Vec<String> = conditions.iter().map(print).collect();
        (!printed.is_empty()).then(|| format!("{{ {} }}", printed.join(", ")))
    }
}
