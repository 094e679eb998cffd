//! Names of balancing policies in other programs, and the answer to each.
//!
//! A user of HAProxy, nginx or Envoy writes the name known there. Where Plimsoll has the same rule,
//! the help names it. Where it has none, the help gives the reason and the alternative.

use plimsoll_core::pick::PolicyKind;

use crate::problem::{Flaw, help_for_name, normal};

/// The answer to a policy of other programs.
#[derive(Clone, Copy)]
enum Answer {
    /// The same rule.
    Same(PolicyKind, &'static str),
    /// No rule of Plimsoll: the reason, and the help.
    Missing(&'static str, &'static str),
}

const TURNS: Answer = Answer::Same(PolicyKind::RoundRobin, "each backend in turn, by its weight");
const FEWEST: Answer = Answer::Same(PolicyKind::LeastLoaded, "the backend with the fewest active requests");
const TWO: Answer = Answer::Same(PolicyKind::P2c, "the less loaded of two random backends");
const LATENCY: Answer = Answer::Same(PolicyKind::PeakEwma, "the lower latency of two random backends");
const REPORTS: Answer = Answer::Same(PolicyKind::Weighted, "weights from the backends' load reports");
const HASH: Answer =
    Answer::Same(PolicyKind::Hash, "equal keys go to the same backend, by key in [clusters.NAME.hash]");
const HASH_ADDRESS: Answer = Answer::Same(PolicyKind::Hash, "with key = [\"address\"] in [clusters.NAME.hash]");
const HASH_PATH: Answer = Answer::Same(PolicyKind::Hash, "with key = [\"path\"] in [clusters.NAME.hash]");
const HASH_HEADER: Answer = Answer::Same(PolicyKind::Hash, "with key = [\"header:x-user\"] in [clusters.NAME.hash]");
const STICKY: Answer = Answer::Same(PolicyKind::Hash, "with [clusters.NAME.hash.sticky], which sets a cookie");
const FIRST: Answer = Answer::Missing(
    "Plimsoll has no policy that fills one backend before the next",
    "write \"weighted\"; to fill one group of backends before the next, list localities in the cluster",
);
const PROVIDED: Answer =
    Answer::Missing("Plimsoll takes backends from its file only", "list the backends, and write \"weighted\"");

/// Names, in lower case and with `_`, up to the first argument.
const NAMES: [(&[&str], Answer); 13] = [
    (&["roundrobin", "rr", "wrr", "static_rr", "weighted_round_robin", "weighted_rr"], TURNS),
    (&["leastconn", "least_conn", "least_connections", "least_connection", "lc", "wlc", "least_loaded"], FEWEST),
    (&["least_request", "least_requests", "power_of_two", "power_of_two_choices", "two_choices"], TWO),
    (&["ewma", "peak_ewma", "least_time", "least_latency", "fastest", "latency"], LATENCY),
    (&["client_side_weighted_round_robin", "client_side_wrr"], REPORTS),
    (&["source", "ip_hash", "iphash", "source_ip", "client_ip"], HASH_ADDRESS),
    (&["uri", "uri_hash", "path"], HASH_PATH),
    (&["hdr", "header"], HASH_HEADER),
    (&["cookie", "sticky", "session", "sticky_session"], STICKY),
    (&["hash", "consistent_hash", "ring_hash", "ringhash", "maglev", "log_hash", "generic_hash"], HASH),
    (&["first"], FIRST),
    (&["cluster_provided", "original_dst"], PROVIDED),
    // With arguments: HAProxy's `random(2)`, nginx's `random two least_conn`.
    (&["random"], TWO),
];

/// Envoy's prefix for extensions that are policies.
const ENVOY_PREFIX: &str = "envoy.load_balancing_policies.";

/// The policy of this name.
///
/// # Errors
/// When it is none, with help for the names of other programs.
pub fn policy(name: &str) -> Result<PolicyKind, Flaw> {
    if let Ok(kind) = name.parse() {
        return Ok(kind);
    }
    let words = name.trim().strip_prefix(ENVOY_PREFIX).unwrap_or(name.trim());
    let word = normal(words.split(['(', ' ']).next().unwrap_or(words));
    // A case or a separator apart, as in `ROUND_ROBIN`.
    let same = |kind: &PolicyKind| normal(kind.name()) == word && !words.contains(['(', ' ']);
    if let Some(kind) = PolicyKind::ALL.into_iter().find(same) {
        return Err(Flaw::new(format!("\"{name}\" is not a policy"), format!("write \"{kind}\"")));
    }
    Err(match NAMES.iter().find(|(names, _)| names.contains(&word.as_str())) {
        Some((_, Answer::Same(kind, rule))) => {
            Flaw::new(format!("\"{name}\" is not a policy"), format!("write \"{kind}\": {rule}"))
        }
        Some((_, Answer::Missing(reason, help))) => Flaw::new(format!("\"{name}\" is not a policy: {reason}"), *help),
        None => {
            let help = help_for_name(name, PolicyKind::ALL.iter().map(|kind| kind.name()));
            Flaw::new(format!("\"{name}\" is not a policy"), help)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_of_another_program_is_answered_with_its_equivalent() {
        for (name, kind) in [
            ("roundrobin", "round-robin"),
            ("ROUND_ROBIN", "round-robin"),
            ("static-rr", "round-robin"),
            ("leastconn", "least-loaded"),
            ("least_conn", "least-loaded"),
            ("LEAST_REQUEST", "p2c"),
            ("envoy.load_balancing_policies.least_request", "p2c"),
            ("RANDOM", "random"),
            ("random(2)", "p2c"),
            ("random two least_conn", "p2c"),
            ("least_time header", "peak-ewma"),
            ("CLIENT_SIDE_WEIGHTED_ROUND_ROBIN", "weighted"),
            ("source", "hash"),
            ("ip_hash", "hash"),
            ("uri", "hash"),
            ("hdr(Host)", "hash"),
            ("RING_HASH", "hash"),
            ("MAGLEV", "hash"),
            ("envoy.load_balancing_policies.maglev", "hash"),
            ("hash $request_uri consistent", "hash"),
            ("sticky cookie srv_id", "hash"),
        ] {
            let flaw = policy(name).unwrap_err();
            let help = format!("write \"{kind}\"");
            assert!(flaw.help == help || flaw.help.starts_with(&format!("{help}: ")), "{name}: {}", flaw.help);
            assert!(kind.parse::<PolicyKind>().is_ok(), "{kind}");
        }
    }

    #[test]
    fn policy_that_plimsoll_lacks_is_answered_with_the_reason() {
        assert!(policy("first").unwrap_err().help.contains("localities"));
        assert!(policy("ORIGINAL_DST").unwrap_err().reason.contains("from its file only"));
    }

    #[test]
    fn policy_is_read_by_its_own_name_and_a_typo_finds_it() {
        for kind in PolicyKind::ALL {
            assert_eq!(policy(kind.name()), Ok(kind));
        }
        assert_eq!(policy("wieghted").unwrap_err().help, "did you mean \"weighted\"?");
        assert!(policy("zzz").unwrap_err().help.starts_with("use one of: "));
    }
}
