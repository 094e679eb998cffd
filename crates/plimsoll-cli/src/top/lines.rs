//! One line a second, for a log, a pipe or a script; and the same as JSON.

use plimsoll_admin::Live;
use serde_json::{Value, json};

use super::state::Proxy;
use crate::fleet::sums::{Sums, merge};
use crate::words::{known, number};

/// The moment, in UTC.
fn moment(at: f64) -> String {
    let time = std::time::Duration::try_from_secs_f64(at).unwrap_or_default();
    let at = std::time::UNIX_EPOCH.checked_add(time).unwrap_or(std::time::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(at).to_string()
}

fn told(sums: &Sums) -> String {
    let verdict = sums.verdict.as_deref().unwrap_or("no-gate");
    let load = match sums.offered_cpus {
        Some(_) => format!(
            "offered {} admitted {} shed {} CPUs",
            known(sums.offered_cpus),
            known(sums.admitted_cpus),
            known(sums.shed_cpus)
        ),
        None => format!(
            "offered {} admitted {} shed {} requests/s",
            number(sums.offered_qps),
            number(sums.admitted_qps),
            number(sums.shed_qps)
        ),
    };
    let used = format!("{}/{}", known(sums.used_cpus), known(sums.capacity_cpus));
    format!("{verdict:<14} {load}, used {used} CPUs, healthy {}/{}", sums.healthy, sums.backends)
}

/// The line of one proxy.
pub(super) fn line(live: &Live) -> String {
    let cluster = live.cluster.as_ref().map_or("–", |cluster| cluster.name.as_str());
    format!("{} {cluster} {}", moment(live.at), told(&Sums::of(live)))
}

/// The line of a fleet, with the sums.
pub(super) fn fleet_line(proxies: &[Proxy], at: f64) -> String {
    let fleet = merge(proxies.iter().map(|proxy| (proxy.admin.as_str(), answer(proxy))));
    format!("{} {}/{} proxies {}", moment(at), fleet.answering, fleet.rows.len(), told(&fleet.sums))
}

fn answer(proxy: &Proxy) -> Option<&Live> {
    proxy.live.as_ref().filter(|_| proxy.lost.is_none())
}

/// The JSON of a fleet: the sums, and the answer of each proxy.
pub(super) fn fleet_json(proxies: &[Proxy], at: f64) -> Value {
    let fleet = merge(proxies.iter().map(|proxy| (proxy.admin.as_str(), answer(proxy))));
    let each = |proxy: &Proxy| json!({ "admin": proxy.admin, "error": proxy.lost, "live": answer(proxy) });
    json!({
        "at": at,
        "answering": fleet.answering,
        "sums": fleet.sums,
        "proxies": proxies.iter().map(each).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::examples::{fine, no_gate, overload};

    #[test]
    fn line_has_verdict_load_use_and_backends() {
        assert_eq!(
            line(&overload()),
            "2025-11-28T10:40:00Z web users-affected offered 11.4 admitted 7.90 shed 3.50 CPUs, used 7.90/8.00 CPUs, \
             healthy 38/40"
        );
        assert_eq!(
            line(&no_gate()),
            "2025-11-28T10:40:00Z web no-gate        offered 812 admitted 800 shed 12.0 requests/s, used –/– CPUs, \
             healthy 2/3"
        );
    }

    #[test]
    fn fleet_has_the_sums_of_those_that_answer() {
        let proxy = |admin: &str, live, lost: Option<&str>| Proxy {
            admin: admin.to_owned(),
            live: Some(live),
            lost: lost.map(str::to_owned),
            ..Proxy::default()
        };
        let proxies = [proxy("a:1", fine(), None), proxy("b:1", overload(), Some("connection refused"))];
        assert!(fleet_line(&proxies, 0.0).starts_with("1970-01-01T00:00:00Z 1/2 proxies fine "));
        let json = fleet_json(&proxies, 0.0);
        assert_eq!((&json["answering"], &json["sums"]["verdict"]), (&json!(1), &json!("fine")));
        assert_eq!(json["proxies"][0]["live"], serde_json::to_value(fine()).unwrap());
        assert_eq!(json["proxies"][1], json!({ "admin": "b:1", "error": "connection refused", "live": null }));
    }
}
