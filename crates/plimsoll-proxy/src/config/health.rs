//! The checks of backends: their kind and interval.

use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use plimsoll::client::{Check, CheckTimeout};
use plimsoll_config::{Choice, Flaw, Format, Table, Visitor, choice, kind, quoted, text};
use plimsoll_core::health::CheckConfig;

/// The kinds of [`Check`], by their names in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    None,
    Tcp,
    Http,
    Grpc,
}

const KINDS: Choice<Kind> = Choice {
    noun: "a kind of check",
    names: &[("none", Kind::None), ("tcp", Kind::Tcp), ("http", Kind::Http), ("grpc", Kind::Grpc)],
};

impl Kind {
    pub(super) fn name(self) -> &'static str {
        KINDS.name(&self)
    }
}

/// Help for a path, or the request of HAProxy's `httpchk`, in place of a kind.
fn others_kind(text: &str) -> Option<String> {
    let path = text.split_whitespace().find(|word| word.starts_with('/'))?;
    Some(format!("write check = \"http\" and path = \"{path}\""))
}

const KIND: Format<Kind> = Format {
    read: |v| match v.as_str().and_then(others_kind) {
        Some(help) => Err(Flaw::new(format!("{} is not {}", kind(v), KINDS.noun), help)),
        None => choice(v, KINDS.noun, KINDS.names),
    },
    print: |kind| quoted(kind.name()),
};

/// The path that a check asks for.
const PATH: Format<PathAndQuery> = Format {
    read: |v| {
        let path = text(v, "a path", "a path in quotes, such as \"/healthz\"")?;
        let help = "write a path that begins with \"/\", such as \"/healthz\"";
        let parsed = path.parse().ok().filter(|_| path.starts_with('/') && !path.contains('#'));
        parsed.ok_or_else(|| Flaw::new(format!("\"{path}\" is not a path"), help))
    },
    print: |path| quoted(path),
};

/// The host that a check names.
const HOST: Format<Authority> = Format {
    read: |v| {
        let host = text(v, "a host", "a name in quotes, such as \"web.internal\"")?;
        let parsed = host.parse().ok().filter(|_| !host.contains('@'));
        parsed.ok_or_else(|| Flaw::new(format!("\"{host}\" is not a host"), "write a name, such as \"web.internal\""))
    },
    print: |host| quoted(host),
};

/// The checks of a cluster's backends. Their times and the meaning of results are the machine's
/// part.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Health {
    /// Time that a check may take, connecting included.
    pub timeout: Duration,
    pub(super) kind: Kind,
    pub(super) path: Option<PathAndQuery>,
    pub(super) host: Option<Authority>,
    pub(super) service: Option<String>,
}

impl Health {
    /// The kind of a check.
    #[must_use]
    pub fn check(&self) -> Check {
        match self.kind {
            Kind::None => Check::None,
            Kind::Tcp => Check::Tcp,
            Kind::Http => Check::Http {
                path: self.path.clone().unwrap_or_else(|| PathAndQuery::from_static("/")),
                host: self.host.clone(),
            },
            Kind::Grpc => Check::Grpc { service: self.service.clone().unwrap_or_default() },
        }
    }
}

impl Default for Health {
    /// Opens a connection: that asks nothing of a backend but to be there.
    fn default() -> Self {
        Self { timeout: CheckTimeout::DEFAULT, kind: Kind::Tcp, path: None, host: None, service: None }
    }
}

/// The table `health` of a cluster: one for the user, in two places here, as the machine does not
/// know the kind of a check, and the code that runs checks does not decide their times.
pub(super) struct HealthTable<'c> {
    pub(super) health: &'c mut Health,
    pub(super) checks: &'c mut CheckConfig,
}

impl Table for HealthTable<'_> {
    const OFF: &'static str = "check = \"none\"";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value_as("check", &mut self.health.kind, KIND);
        visitor.optional_as("path", &mut self.health.path, PATH);
        visitor.optional_as("host", &mut self.health.host, HOST);
        visitor.optional("service", &mut self.health.service);
        visitor.value("interval", &mut self.checks.interval);
        visitor.value("timeout", &mut self.health.timeout);
        visitor.value("failures_to_refuse", &mut self.checks.failures_to_refuse);
        visitor.value("passes_to_heal", &mut self.checks.passes_to_heal);
    }
}
