//! What to do about a key that its table does not have.
//!
//! What was meant is most likely here, under another name: one key in the wrong table is rarer than ten that other
//! proxies call otherwise. So the settings of the table itself are looked through first, for what others call them,
//! then for a slip of the fingers, then for a part of the name; other tables that have the key come only after.

use crate::problem::{did_you_mean, normal};

/// Words of other programs, and what is meant by them where there is a setting of that name. They decide on nothing but the
/// text of a help.
const OTHERS_WORDS: [(&[&str], &str); 10] = [
    (&["listen", "bind", "port"], "address"),
    (&["address", "bind", "port"], "listen"),
    (&["servers", "server", "upstreams", "upstream", "endpoints", "targets", "hosts"], "backends"),
    (&["backend", "upstream", "service", "proxy_pass"], "cluster"),
    (&["algorithm", "balance", "lb_policy", "strategy"], "policy"),
    (&["max_connections", "max_conns", "maxconn", "max_requests"], "max_active_requests"),
    (&["retries", "retry_policy"], "retry"),
    (&["retries", "max_retries", "num_retries"], "max_attempts"),
    (&["cert", "key", "cert_file", "key_file"], "certificates"),
    (&["workers", "worker_threads", "worker_processes"], "threads"),
];

/// More settings than this share a word by chance.
const MOST_MEANT: usize = 4;

/// Help where `key` is none of `known`, the settings of its table. `tables_with` names the tables that have it.
pub(crate) fn help(key: &str, known: &[&'static str], tables_with: fn(&str) -> Vec<String>) -> String {
    let meant = meant(key, known);
    if !meant.is_empty() {
        let quoted: Vec<String> = meant.iter().map(|name| format!("\"{name}\"")).collect();
        return format!("did you mean {}?", listed(&quoted, "or"));
    }
    let elsewhere = tables_with(key);
    if elsewhere.is_empty() {
        format!("remove it; settings here: {}", known.join(", "))
    } else {
        format!("it is a setting of {}", listed(&elsewhere, "and"))
    }
}

/// The settings among `known` that may be meant by `key`.
fn meant(key: &str, known: &[&'static str]) -> Vec<&'static str> {
    let key = normal(key);
    let by_others = OTHERS_WORDS.iter().find(|(words, ours)| words.contains(&&key[..]) && known.contains(ours));
    if let Some((_, ours)) = by_others {
        return vec![ours];
    }
    let possible = || known.iter().copied().filter(|name| !is_opposite(&key, name));
    if let Some(name) = did_you_mean(&key, possible()) {
        return vec![name];
    }
    let alike: Vec<_> = possible().filter(|name| has_parts(name, &key) || begins_with(&key, name)).collect();
    if alike.len() > MOST_MEANT { Vec::new() } else { alike }
}

/// Whether one is the most of something and the other the least.
fn is_opposite(a: &str, b: &str) -> bool {
    has_parts(a, "max") && has_parts(b, "min") || has_parts(a, "min") && has_parts(b, "max")
}

/// Whether `parts` stands in `name` in whole words: `path` does in `path_prefix`.
fn has_parts(name: &str, parts: &str) -> bool {
    format!("_{name}_").contains(&format!("_{parts}_"))
}

/// Whether `key` begins with `name`, in its plural too: `health_checks` does with `health`.
fn begins_with(key: &str, name: &str) -> bool {
    key.strip_prefix(name).is_some_and(|rest| rest == "s" || rest.starts_with('_'))
}

/// `a, b or c`.
fn listed(items: &[String], word: &str) -> String {
    match items {
        [first @ .., second_last, last] => {
            first.iter().map(|item| format!("{item}, ")).collect::<String>() + second_last + &format!(" {word} {last}")
        }
        _ => items.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: [&str; 9] = [
        "backends",
        "policy",
        "max_active_requests",
        "connect_timeout",
        "request_timeout",
        "min_connections",
        "health",
        "retry",
        "outlier",
    ];

    fn nowhere(_: &str) -> Vec<String> {
        Vec::new()
    }

    #[test]
    fn what_is_called_otherwise_elsewhere_is_found_here() {
        for (key, known, expected) in [
            ("polcy", &CLUSTER[..], "did you mean \"policy\"?"),
            ("servers", &CLUSTER, "did you mean \"backends\"?"),
            ("timeout", &CLUSTER, "did you mean \"connect_timeout\" or \"request_timeout\"?"),
            ("health_checks", &CLUSTER, "did you mean \"health\"?"),
            ("healths", &CLUSTER, "did you mean \"health\"?"),
            ("retries", &CLUSTER, "did you mean \"retry\"?"),
            ("max-connections", &CLUSTER, "did you mean \"max_active_requests\"?"),
            ("path", &["path_prefix", "cluster"], "did you mean \"path_prefix\"?"),
            ("upstream", &["path_prefix", "cluster"], "did you mean \"cluster\"?"),
            ("max_retries", &["max_attempts", "budget"], "did you mean \"max_attempts\"?"),
            ("address", &["listen"], "did you mean \"listen\"?"),
            ("port", &["address", "name"], "did you mean \"address\"?"),
            ("key", &["certificates", "client_ca"], "did you mean \"certificates\"?"),
        ] {
            assert_eq!(help(key, known, nowhere), expected, "{key}");
        }
    }

    #[test]
    fn the_most_of_something_is_never_taken_for_the_least() {
        assert_eq!(help("max_connection", &["min_connections"], nowhere), "remove it; settings here: min_connections");
    }

    #[test]
    fn a_word_that_many_settings_share_names_none() {
        let known = ["max_a", "max_b", "max_c", "max_d", "max_e"];
        assert!(help("max", &known, nowhere).starts_with("remove it"));
    }

    #[test]
    fn what_is_nowhere_here_is_named_where_it_is() {
        let tables = |_: &str| ["[drain]", "[[arms]]", "[log]"].map(str::to_owned).to_vec();
        assert_eq!(help("zzz", &CLUSTER, tables), "it is a setting of [drain], [[arms]] and [log]");
    }
}
