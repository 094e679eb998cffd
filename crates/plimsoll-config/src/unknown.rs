//! Help for a key that its table does not have.
//!
//! The meant setting is most likely in the same table, under another name: for one key in the wrong
//! table there are ten with a name of another proxy. So the settings of the table come first: names
//! of other programs, then typing errors, then parts of the name. Other tables with the key come
//! last.

use crate::others_words::{NAMES, NOTES};
use crate::problem::{did_you_mean, normal};

/// More settings than this share a word by chance.
const MOST_MEANT: usize = 5;

/// Help where `key` is none of `known`, the settings of its table. `tables_with` names the tables
/// that have it; `write` gives a setting as the user would write it.
pub(crate) fn help(
    key: &str,
    known: &[&'static str],
    tables_with: fn(&str) -> Vec<String>,
    write: impl Fn(&'static str) -> String,
) -> String {
    if let Some(note) = note(key, known) {
        return note.to_owned();
    }
    let meant = meant(key, known);
    if !meant.is_empty() {
        let written: Vec<String> = meant.into_iter().map(write).collect();
        return format!("did you mean {}?", listed(&written, "or"));
    }
    let elsewhere = tables_with(key);
    if elsewhere.is_empty() {
        format!("remove it; settings here: {}", known.join(", "))
    } else {
        format!("it is a setting of {}", listed(&elsewhere, "and"))
    }
}

/// The answer to a feature of other programs that is elsewhere, or missing.
fn note(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let key = normal(key);
    let note = NOTES.iter().find(|(words, mark, _)| words.contains(&&key[..]) && known.contains(mark));
    note.map(|(_, _, help)| *help)
}

/// The settings among `known` that may be meant by `key`.
pub(crate) fn meant(key: &str, known: &[&'static str]) -> Vec<&'static str> {
    let has_note = note(key, known).is_some();
    let key = normal(key);
    let by_others = NAMES.iter().find(|(words, ours)| words.contains(&&key[..]) && known.contains(ours));
    if let Some((_, ours)) = by_others {
        return vec![ours];
    }
    // It is elsewhere or missing, so that a name like it means something else.
    if has_note {
        return Vec::new();
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

    fn quote(name: &str) -> String {
        format!("\"{name}\"")
    }

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
            ("retries", &CLUSTER, "write max_attempts in [clusters.NAME.retry]: it counts the first attempt, too"),
            ("max-connections", &CLUSTER, "did you mean \"max_active_requests\"?"),
            ("path", &["path_prefix", "cluster"], "did you mean \"path_prefix\"?"),
            ("upstream", &["path_prefix", "cluster"], "did you mean \"cluster\"?"),
            ("max_retries", &["max_attempts", "budget"], "did you mean \"max_attempts\"?"),
            ("address", &["listen"], "did you mean \"listen\"?"),
            ("port", &["address", "name"], "did you mean \"address\"?"),
            (
                "key",
                &["certificates", "client_ca"],
                "write certificates = [{ certificate = \"a.pem\", key = \"a.key\" }]",
            ),
            (
                "sticky",
                &CLUSTER,
                "write policy = \"hash\" here, and [clusters.NAME.hash] with key = [\"cookie:session\"], or [clusters.NAME.hash.sticky]",
            ),
            (
                "rewrite",
                &["path_prefix", "host_rewrite"],
                "write prefix_rewrite or path_rewrite: regular expressions are not known",
            ),
            ("timeout_server", &CLUSTER, "did you mean \"request_timeout\"?"),
        ] {
            assert_eq!(help(key, known, nowhere, quote), expected, "{key}");
        }
    }

    #[test]
    fn the_most_of_something_is_never_taken_for_the_least() {
        assert_eq!(
            help("max_connection", &["min_connections"], nowhere, quote),
            "remove it; settings here: min_connections"
        );
    }

    #[test]
    fn a_word_that_many_settings_share_names_none() {
        let known = ["max_a", "max_b", "max_c", "max_d", "max_e", "max_f"];
        assert!(help("max", &known, nowhere, quote).starts_with("remove it"));
    }

    #[test]
    fn what_is_nowhere_here_is_named_where_it_is() {
        let tables = |_: &str| ["[drain]", "[[arms]]", "[log]"].map(str::to_owned).to_vec();
        assert_eq!(help("zzz", &CLUSTER, tables, quote), "it is a setting of [drain], [[arms]] and [log]");
    }
}
