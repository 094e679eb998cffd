//! The caller of a method, and its rights by the names in its certificate.
//!
//! Without TLS the server listens at loopback, and a caller is a process of this machine: each may
//! report. With TLS a caller has the rights that a setting gives to one of its names.

use plimsoll::tls::ClientNames;
use plimsoll_tls_config::ClientName;
use thiserror::Error;
use tonic::Status;

use crate::config::ServiceConfig;

/// The caller of a method: an extension of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of this machine.
    Local,
    /// A client with a verified certificate, and the names in it.
    Certified(ClientNames),
}

/// No name of a certificate has a right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the certificate has {}, and {setting} of the quota server has none of it: add it there", described(.names))]
pub(crate) struct Denied {
    names: ClientNames,
    setting: String,
}

/// The longest list of names in an error: it is a header of the answer.
const MAX_TEXT: usize = 512;

fn described(of: &ClientNames) -> String {
    if of.0.is_empty() {
        return "no URI or DNS name (SAN)".to_owned();
    }
    let mut text = of.0.join(", ");
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    format!("the names (SAN) {text}")
}

impl Denied {
    /// The setting that gives the right.
    pub(crate) fn setting(&self) -> &str {
        &self.setting
    }
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        Self::permission_denied(denied.to_string())
    }
}

impl Caller {
    /// The caller of a request of a server with TLS, or without.
    pub(crate) fn of(extensions: &http::Extensions, is_tls: bool) -> Self {
        if is_tls { Self::Certified(extensions.get::<ClientNames>().cloned().unwrap_or_default()) } else { Self::Local }
    }

    /// A caller without rights.
    pub(crate) fn nobody() -> Self {
        Self::Certified(ClientNames::default())
    }

    /// Whether the caller may report for a service.
    pub(crate) fn may_report(&self, service: &str, config: &ServiceConfig) -> Result<(), Denied> {
        self.is_one_of(&config.reporters, || format!("services.{service}.reporters"))
    }

    /// Whether the caller may change limits. Of a process of this machine the connection says more.
    pub(crate) fn may_operate(&self, operators: &[ClientName]) -> Result<(), Denied> {
        self.is_one_of(operators, || "admin.operators".to_owned())
    }

    fn is_one_of(&self, patterns: &[ClientName], setting: impl FnOnce() -> String) -> Result<(), Denied> {
        let Self::Certified(names) = self else { return Ok(()) };
        let has_right = names.0.iter().any(|name| patterns.iter().any(|pattern| pattern.matches(name)));
        if has_right { Ok(()) } else { Err(Denied { names: names.clone(), setting: setting() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn certified(names: &[&str]) -> Caller {
        let names: Vec<Box<str>> = names.iter().copied().map(Into::into).collect();
        Caller::of(
            &{
                let mut extensions = http::Extensions::new();
                extensions.insert(ClientNames(names.into()));
                extensions
            },
            true,
        )
    }

    fn patterns(list: &str) -> Vec<ClientName> {
        list.split_whitespace().map(|name| ClientName::parse(name).unwrap()).collect()
    }

    #[test]
    fn name_of_a_certificate_gives_the_right_to_report_for_its_service() {
        let reporters = patterns("spiffe://td/shop/* *.shop.internal");
        let shop = ServiceConfig { reporters, ..ServiceConfig::default() };
        for name in ["spiffe://td/shop/a", "a.shop.internal"] {
            assert_eq!(certified(&["spiffe://td/other", name]).may_report("shop", &shop), Ok(()), "{name}");
        }
        for names in [&["spiffe://td/shop", "spiffe://td/shops/a"][..], &["shop.internal"], &[]] {
            assert!(certified(names).may_report("shop", &shop).is_err(), "{names:?}");
        }
        let none = ServiceConfig::default();
        assert!(certified(&["spiffe://td/shop/a"]).may_report("other", &none).is_err(), "an empty list is for none");
    }

    #[test]
    fn refusal_names_the_names_and_the_setting() {
        let status = Status::from(certified(&["spiffe://td/a", "b.example"]).may_operate(&[]).unwrap_err());
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
        assert_eq!(
            status.message(),
            "the certificate has the names (SAN) spiffe://td/a, b.example, and admin.operators of the quota server \
             has none of it: add it there"
        );
        let long = "x".repeat(100_000);
        assert!(certified(&[&long]).may_operate(&[]).unwrap_err().to_string().len() < 1_000);
    }

    #[test]
    fn caller_without_a_name_has_no_right_where_tls_is_spoken() {
        let caller = Caller::of(&http::Extensions::new(), true);
        assert!(caller.may_report("shop", &ServiceConfig::default()).is_err());
        assert!(caller.may_operate(&patterns("a.example")).is_err());
        assert_eq!(Caller::of(&http::Extensions::new(), false).may_report("shop", &ServiceConfig::default()), Ok(()));
    }

    #[test]
    fn file_gives_rights() {
        let text = "admin.operators = [\"spiffe://td/sre\"]\n[services.shop]\nreporters = [\"shop.internal\"]\n";
        let error = Config::parse("quota.toml", text).unwrap_err().to_string();
        assert!(error.contains("services.shop.reporters: has no effect without [tls]"), "{error}");
        assert!(error.contains("admin.operators: has no effect without [tls]"), "{error}");
    }
}
