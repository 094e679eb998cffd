//! The key of a request under the policy `hash`, and the cookie that makes clients sticky.

use std::fmt;
use std::time::Duration;

use http::HeaderName;
use plimsoll_config::{Checker, Choice, Flaw, Format, LOAD_BOUND, List, Table, Visitor, quoted, table, text};
use plimsoll_core::pick::{HashConfig, PolicyKind};

use super::cluster::Cluster;

/// A part of a request that can be its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The value of a header field.
    Header(HeaderName),
    /// The value of a cookie.
    Cookie(String),
    /// The client's address; of an IPv6 address the first 64 bits.
    Address,
    /// The path, without the query.
    Path,
}

const KEY_EXAMPLE: &str = "write \"header:x-user\", \"cookie:session\", \"address\" or \"path\"";

fn is_token(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

const KEY_SOURCE: Format<KeySource> = Format {
    read: |v| {
        let word = text(v, "a part of a request", "a part in quotes, such as \"header:x-user\"")?;
        let flaw = || Flaw::new(format!("\"{word}\" is not a part of a request"), KEY_EXAMPLE);
        match word.split_once(':') {
            None if word == "address" => Ok(KeySource::Address),
            None if word == "path" => Ok(KeySource::Path),
            Some(("header", name)) => name.trim().parse().map(KeySource::Header).map_err(|_| flaw()),
            Some(("cookie", name)) if is_token(name.trim()) => Ok(KeySource::Cookie(name.trim().to_owned())),
            _ => Err(flaw()),
        }
    },
    print: |source| quoted(source),
};

/// As it is written in the file.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Address => f.write_str("address"),
            Self::Path => f.write_str("path"),
        }
    }
}

/// When a browser sends the cookie with requests that come from other sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameSite {
    /// When a person follows a link.
    #[default]
    Lax,
    /// Never.
    Strict,
    /// Always; browsers require `secure` then.
    None,
}

impl SameSite {
    /// The word in the cookie.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lax => "Lax",
            Self::Strict => "Strict",
            Self::None => "None",
        }
    }
}

const SAME_SITE: Choice<SameSite> = Choice {
    noun: "a value of SameSite",
    names: &[("lax", SameSite::Lax), ("strict", SameSite::Strict), ("none", SameSite::None)],
};

const COOKIE_NAME: Format<String> = Format {
    read: |v| {
        let help = "write letters, digits, \"-\" and \"_\", such as \"plimsoll\"";
        let name = text(v, "the name of a cookie", help)?;
        let flaw = || Flaw::new(format!("\"{name}\" is not the name of a cookie"), help);
        is_token(name).then(|| name.to_owned()).ok_or_else(flaw)
    },
    print: |name| quoted(name),
};

const COOKIE_PATH: Format<String> = Format {
    read: |v| {
        let path = text(v, "a path", "a path in quotes, such as \"/\"")?;
        let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
        let flaw = || Flaw::new(format!("\"{path}\" is not the path of a cookie"), "write a path such as \"/app\"");
        is_path.then(|| path.to_owned()).ok_or_else(flaw)
    },
    print: |path| quoted(path),
};

table! {
    /// A cookie that the proxy sets, so that a client without a key gets one.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Sticky {
        /// Its name.
        pub cookie: String = "plimsoll".to_owned(), value_as(COOKIE_NAME);
        /// The paths that it is sent for.
        pub path: String = "/".to_owned(), value_as(COOKIE_PATH);
        /// Its lifetime; `None`: until the browser closes.
        pub max_age: Option<Duration> = None, switch;
        /// It is sent over TLS only, also where the listener has no TLS itself.
        pub secure: bool = false, value;
        /// When it comes with requests from other sites.
        pub same_site: SameSite = SameSite::Lax, value_as(SAME_SITE);
    }
}

/// The keys of a cluster's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HashKeys {
    /// Where the key is; the first that a request has counts.
    pub sources: Vec<KeySource>,
    /// The cookie for clients without any of them; `None`: none is set.
    pub sticky: Option<Sticky>,
}

impl HashKeys {
    /// The key of a configuration without a file.
    pub(super) fn by_address() -> Self {
        Self { sources: vec![KeySource::Address], sticky: None }
    }
}

/// The table: the core's setting, and those of the proxy.
pub(super) struct HashTable<'c> {
    pub(super) hash: &'c mut HashConfig,
    pub(super) keys: &'c mut HashKeys,
}

impl Table for HashTable<'_> {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value_as("key", &mut self.keys.sources, List(KEY_SOURCE));
        visitor.switch_as("bound", &mut self.hash.bound, LOAD_BOUND);
        visitor.optional_table("sticky", &mut self.keys.sticky);
    }
}

impl Cluster {
    /// Reports a policy without its key, and a key without its policy.
    pub(super) fn check_hash(&self, path: &str, checker: &mut Checker<'_>) {
        let (table, keys) = (format!("{path}.hash"), &self.hash_keys);
        let is_hash = self.balancer.policy == PolicyKind::Hash;
        if !checker.is_readable(&format!("{path}.policy")) {
            return;
        }
        if !is_hash && (*keys != HashKeys::default() || self.balancer.hash != HashConfig::default()) {
            let reason = format!("has no effect: the policy is \"{}\"", self.balancer.policy);
            checker.report(table, reason, "write policy = \"hash\" in the cluster, or remove it");
            return;
        }
        if is_hash && keys.sources.is_empty() && keys.sticky.is_none() && checker.is_readable(&format!("{table}.key")) {
            let help = format!("add key = [\"header:x-user\"] or another key to [{table}], or [{table}.sticky]");
            checker.report(format!("{path}.policy"), "hash needs a key: no part of a request decides", help);
        }
        for (k, source) in keys.sources.iter().enumerate() {
            let at = format!("{table}.key[{k}]");
            let always = keys.sources[..k].iter().find(|it| matches!(it, KeySource::Address | KeySource::Path));
            if keys.sources[..k].contains(source) {
                checker.report(at, "is in the list twice", "remove one of them");
            } else if let Some(always) = always {
                let reason = format!("has no effect: every request has {} before it", (KEY_SOURCE.print)(always));
                checker.report(at, reason, "put it first, or remove it");
            }
        }
        let Some(sticky) = &keys.sticky else { return };
        if let Some(always) = keys.sources.iter().find(|it| matches!(it, KeySource::Address | KeySource::Path)) {
            let reason = format!("has no effect: every request has {} as its key", (KEY_SOURCE.print)(always));
            checker.report(format!("{table}.sticky"), reason, "remove it from key, or remove this table");
        }
        if sticky.same_site == SameSite::None && !sticky.secure {
            let reason = "browsers reject the cookie without secure = true";
            checker.report(format!("{table}.sticky.same_site"), reason, "add secure = true, or write \"lax\"");
        }
        if sticky.max_age.is_some_and(|age| age.as_secs() == 0) {
            let reason = "the cookie would expire at once";
            checker.report(format!("{table}.sticky.max_age"), reason, "write at least \"1s\", or \"off\"");
        }
    }
}
