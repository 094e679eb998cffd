//! What the admin API says of requests, for a person to read.

use std::fmt::Write as _;

use plimsoll_core::Rejection;
use serde_json::Value;

/// Requests, a line each, and how far back there are any.
pub(super) fn list(requests: &[Value], remembered: &[Value]) -> String {
    let mut out = String::new();
    if !requests.is_empty() {
        let _ = writeln!(
            out,
            "{:>9}  {:<16}  {:<8}  {:>6}  {:<20}  {:<14}  REQUEST",
            "AGO", "ID", "OUTCOME", "STATUS", "REASON", "CRITICALITY"
        );
    }
    for request in requests {
        let level = request["criticality"]["level"].as_str().unwrap_or("-");
        let _ = writeln!(
            out,
            "{:>9}  {:<16}  {:<8}  {:>6}  {:<20}  {level:<14}  {} {}{}",
            span(&request["ago_s"]),
            text(request, "id"),
            text(request, "outcome"),
            request["status"].as_u64().map_or_else(|| "-".to_owned(), |status| status.to_string()),
            request["reason"].as_str().unwrap_or("-"),
            text(request, "method"),
            text(request, "path"),
            request["customer"].as_str().map(|name| format!("  customer {name}")).unwrap_or_default(),
        );
    }
    let reach: Vec<String> = remembered
        .iter()
        .filter(|kind| !kind["reaches_back_s"].is_null())
        .map(|kind| {
            format!("{} {} (back to {} ago)", kind["requests"], text(kind, "outcome"), span(&kind["reaches_back_s"]))
        })
        .collect();
    let _ = match (requests.is_empty(), reach.is_empty()) {
        (_, true) => writeln!(out, "no requests are remembered yet"),
        (true, false) => writeln!(out, "no match; remembered: {}", reach.join(", ")),
        (false, false) => writeln!(out, "\nremembered: {}", reach.join(", ")),
    };
    out
}

/// Where requests with this reason are to be found, if none is remembered.
pub(super) fn only_counted(reason: &str) -> String {
    format!(
        "help: a request with an unreadable head is only counted, in \
         plimsoll_refused_requests_total{{reason=\"{reason}\"}}"
    )
}

/// All that is known of a request.
pub(super) fn whole(request: &Value) -> String {
    let mut out = String::new();
    let mut line = |name: &str, what: String| {
        let _ = writeln!(out, "  {name:<12}{what}");
    };
    let own = if request["id_is_own"] == true { " (id from the proxy)" } else { "" };
    let came = format!("{} {}, from {}", text(request, "method"), text(request, "path"), text(request, "client"));
    line("request", came);
    line("listener", text(request, "listener").to_owned());
    match (request["route"].as_str(), request["cluster"].as_str()) {
        (Some(route), Some(cluster)) => line("route", format!("{route} -> cluster {cluster}")),
        _ => line("route", "none".to_owned()),
    }
    if !request["split"].is_null() {
        line("split", split(&request["split"]));
    }
    let criticality = &request["criticality"];
    if !criticality.is_null() {
        let malformed = match criticality["malformed_values"].as_u64() {
            None | Some(0) => String::new(),
            Some(count) => format!("; malformed header values: {count}"),
        };
        line("criticality", format!("{}: {}{malformed}", text(criticality, "level"), text(criticality, "why")));
    }
    if let Some(customer) = request["customer"].as_str() {
        line("customer", customer.to_owned());
    }
    if let Some(limit) = request_limit(&request["request_limit"]) {
        line("limit", limit);
    }
    line("gate", gate(&request["gate"]));
    if !request["hash"].is_null() {
        line("hash", hash(&request["hash"]));
    }
    for attempt in request["failed_attempts"].as_array().into_iter().flatten() {
        let backend = attempt["backend"].as_str().unwrap_or("(removed)");
        let (reason, error, next) = (text(attempt, "reason"), text(attempt, "error"), text(attempt, "next"));
        line("attempt", format!("{backend} after {} ms: {reason}: {error}; {next}", attempt["after_ms"]));
    }
    let cause = request["cause"].as_str().map(|cause| format!(" ({cause})")).unwrap_or_default();
    let reason = request["reason"].as_str().map(|reason| format!(", {reason}{cause}")).unwrap_or_default();
    let locality = request["locality"].as_str().map(|name| format!(" in {name}")).unwrap_or_default();
    let backend = request["backend"].as_str().map(|it| format!(", backend {it}{locality}")).unwrap_or_default();
    let status = request["status"].as_u64().map(|status| format!(" with {status}")).unwrap_or_default();
    let outcome = text(request, "outcome");
    line("outcome", format!("{outcome}{status}{reason}{backend}, after {} ms", request["took_ms"]));
    format!("{}{own}, {} ago\n{out}", text(request, "id"), span(&request["ago_s"]))
}

/// The limit on the customer's requests that a request is over.
fn request_limit(limit: &Value) -> Option<String> {
    let rate = limit["requests_per_second"].as_f64()?;
    let dry_run = if limit["dry_run"] == true { " (dry run: admitted)" } else { "" };
    let (burst, after) = (&limit["burst"], limit["retry_after_ms"].as_f64().unwrap_or(0.0));
    // A rate such as 0.3 is kept as a time between requests.
    let rate = (rate * 1e6).round() / 1e6;
    Some(format!("over {rate} requests per second{dry_run}; burst {burst}, next request after {:.0} ms", after.ceil()))
}

/// The choice of a backend by the key of a request.
fn hash(choice: &Value) -> String {
    let Some(key) = choice["key"].as_str() else { return "no key: a least loaded backend".to_owned() };
    let home = choice["home"].as_str().map(|home| format!(", home {home}")).unwrap_or_default();
    let place = match text(choice, "place") {
        "first" => ": sent there",
        "moved" => ": moved, as the home was unusable",
        "overflow" => ": overflow, as the home was at its bound, failing, in slow start or tried before",
        _ => "",
    };
    format!("key {key}{home}{place}")
}

/// The side of a request, and the verdict on its canary now.
fn split(split: &Value) -> String {
    let share = 100.0 * split["share"].as_f64().unwrap_or_default();
    let by = split["by"].as_str().map(|by| format!(" by {by}")).unwrap_or_default();
    let verdict = match text(split, "verdict") {
        "undecided" => match split["needed_requests"].as_u64() {
            Some(needed) => format!("no verdict yet, needs about {needed} more requests of the canary"),
            None => "no verdict yet".to_owned(),
        },
        "no-difference" => "the canary does not differ".to_owned(),
        verdict => format!("the canary is {verdict}"),
    };
    let difference = Some(text(split, "difference")).filter(|text| !text.is_empty());
    let difference = difference.map(|text| format!(": {text}")).unwrap_or_default();
    format!("{}, {share:.4}% of requests{by}; {verdict}{difference}", text(split, "side")).replace(".0000%", "%")
}

fn gate(gate: &Value) -> String {
    if gate.is_null() {
        return "not asked: the cluster has no gate, the route is exempt, or the request was refused before".to_owned();
    }
    let dry_run = if gate["dry_run"] == true { " (dry run: admitted)" } else { "" };
    let (decision, pressure) = (text(gate, "decision"), text(gate, "pressure"));
    format!(
        "{decision}{dry_run}{}; expected cost {} ms of CPU, pressure {pressure}",
        quota(gate) + &fleet(gate),
        gate["expected_cost_ms"]
    )
}

/// The columns of [`line`].
pub(crate) const LINE_HEADER: &str =
    "TIME          ID                CLUSTER       CUSTOMER      CRITICALITY     REASON             COST  DETAIL";

/// A request in one line: when, which, whose, why, and the figures behind the reason.
pub(crate) fn line(request: &Value) -> String {
    let field = |key: &str| request[key].as_str().unwrap_or("-");
    let level = request["criticality"]["level"].as_str().unwrap_or("-");
    let cost = request["gate"]["expected_cost_ms"].as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    format!(
        "{}  {:<16}  {:<12}  {:<12}  {level:<14}  {:<12}  {cost:>9}  {} {}: {}",
        time_of_day(&request["at"]),
        field("id"),
        field("cluster"),
        field("customer"),
        field("reason"),
        field("method"),
        field("path"),
        detail(request),
    )
}

/// The columns of [`short_line`].
const SHORT_HEADER: &str = "TIME          ID                CUSTOMER      CRITICALITY     REASON";

/// A request of a known cluster in a line for a screen: the end of it may be cut.
pub(crate) fn short_line(request: &Value) -> String {
    let field = |key: &str| request[key].as_str().unwrap_or("-");
    let level = request["criticality"]["level"].as_str().unwrap_or("-");
    let (time, id, customer) = (time_of_day(&request["at"]), field("id"), field("customer"));
    let (reason, detail, method, path) = (field("reason"), detail(request), field("method"), field("path"));
    format!("{time}  {id:<16}  {customer:<12}  {level:<14}  {reason}: {detail}; {method} {path}")
}

/// Requests of a known cluster for a screen, in their order.
pub(super) fn short_lines(requests: &[Value]) -> Vec<String> {
    std::iter::once(SHORT_HEADER.to_owned()).chain(requests.iter().map(short_line)).collect()
}

/// The time in UTC.
fn time_of_day(at: &Value) -> String {
    let ms = (at.as_f64().unwrap_or_default().max(0.0) * 1e3).round() as u64 % 86_400_000;
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// The reason in plain words, with the figures of a decision.
fn detail(request: &Value) -> String {
    let reason = request["reason"].as_str().unwrap_or_default();
    let meaning = meaning(reason).unwrap_or_else(|| text(request, "outcome"));
    if let Some(attempt) = request["failed_attempts"].as_array().and_then(|attempts| attempts.last()) {
        let backend = attempt["backend"].as_str().unwrap_or("(removed)");
        return format!("{meaning}; last attempt at {backend}: {}", text(attempt, "error"));
    }
    if let Some(limit) = request_limit(&request["request_limit"]) {
        return format!("{meaning}: {limit}");
    }
    let of = &request["gate"];
    match of["decision"].as_str() {
        None | Some("admitted") => meaning.to_owned(),
        Some(_) => {
            let dry_run = if of["dry_run"] == true { " (dry run: admitted)" } else { "" };
            format!("{meaning}{dry_run}{}, pressure {}", quota(of) + &fleet(of), text(of, "pressure"))
        }
    }
}

/// A reason in plain words.
fn meaning(reason: &str) -> Option<&'static str> {
    let text = Rejection::from_name(reason)?.row().text;
    Some(text.split_once(": ").map_or(text, |(_, meaning)| meaning))
}

/// A refusal by a limit over the fleet.
fn fleet(gate: &Value) -> String {
    let Some(limit) = gate["fleet_limit_cpus"].as_f64() else { return String::new() };
    let reason = match gate["fleet_cut"].as_str() {
        Some(cut) => {
            let admitted = gate["fleet_cut_admitted"].as_f64().unwrap_or_default() * 100.0;
            format!("cut at {cut}, {admitted:.0}% of it admitted")
        }
        None => "the rate of this task is used up".to_owned(),
    };
    let dry_run = if gate["fleet_dry_run"] == true { " (dry run of the limit)" } else { "" };
    let group = gate["fleet_group"].as_str().map(|name| format!(" of group {name}")).unwrap_or_default();
    let all = |key: &str| gate[key].as_f64().map_or("an unknown number".to_owned(), |cpus| cpus.to_string());
    let (rate, used, demand) = (&gate["fleet_rate_cpus"], all("fleet_used_cpus"), all("fleet_demand_cpus"));
    format!(
        ": limit{group} over the fleet{dry_run}: {reason}; this task holds {rate} of {limit} CPUs; all tasks use {used}, \
         and {demand} are asked for"
    )
}

/// Both sides of a refusal for quota.
fn quota(gate: &Value) -> String {
    let Some(limit) = gate["hard_limit_cpus"].as_f64() else { return String::new() };
    let number = |key: &str| gate[key].as_f64().unwrap_or_default();
    let debt = match number("customer_debt_cpu_s") {
        debt if debt > 0.0 => format!(" and owes {debt} CPU-seconds for earlier requests"),
        _ => String::new(),
    };
    format!(": the customer uses {} of {limit} CPUs{debt}", number("customer_used_cpus"))
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// Seconds, as a person says them.
fn span(seconds: &Value) -> String {
    match seconds.as_f64().unwrap_or_default() {
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused() -> Value {
        json!({
            "id": "1f3a9c4e77b2d015", "id_is_own": true, "ago_s": 12.34, "took_ms": 0.08, "listener": "public",
            "client": "10.0.0.9:4711", "method": "GET", "path": "/search", "route": "/", "cluster": "web",
            "criticality": { "level": "sheddable", "why": "claimed in x-criticality", "malformed_values": 1 },
            "customer": "ann",
            "gate": { "decision": "overloaded", "dry_run": false, "expected_cost_ms": 2.5, "pressure": "severe" },
            "failed_attempts": [], "outcome": "refused", "status": 503, "reason": "overloaded", "backend": null,
        })
    }

    #[test]
    fn a_request_is_told_step_by_step() {
        let expected = "\
1f3a9c4e77b2d015 (id from the proxy), 12.3 s ago
  request     GET /search, from 10.0.0.9:4711
  listener    public
  route       / -> cluster web
  criticality sheddable: claimed in x-criticality; malformed header values: 1
  customer    ann
  gate        overloaded; expected cost 2.5 ms of CPU, pressure severe
  outcome     refused with 503, overloaded, after 0.08 ms
";
        assert_eq!(whole(&refused()), expected);
    }

    #[test]
    fn split_tells_the_side_and_the_verdict() {
        let mut request = refused();
        request["split"] = json!({
            "side": "canary", "share": 0.05, "by": "cookie:session", "verdict": "worse",
            "difference": "CPU per request +10.2% (+7.1% to +13.4%)", "needed_requests": null,
        });
        let line = "  split       canary, 5% of requests by cookie:session; the canary is worse: \
                    CPU per request +10.2% (+7.1% to +13.4%)\n";
        assert!(whole(&request).contains(line), "{}", whole(&request));
        (request["split"]["verdict"], request["split"]["needed_requests"]) = (json!("undecided"), json!(4000));
        (request["split"]["by"], request["split"]["difference"]) = (json!(null), json!(""));
        let line =
            "  split       canary, 5% of requests; no verdict yet, needs about 4000 more requests of the canary\n";
        assert!(whole(&request).contains(line), "{}", whole(&request));
    }

    #[test]
    fn a_line_has_reason_cost_and_figures() {
        let mut request = refused();
        request["at"] = json!(1_764_326_400.125);
        let expected = "10:40:00.125  1f3a9c4e77b2d015  web           ann           sheddable       overloaded       2.5 ms  \
                        GET /search: this backend has more work than it can do, pressure severe";
        assert_eq!(line(&request), expected);
        (request["reason"], request["gate"]["decision"]) = (json!("quota"), json!("quota"));
        (request["gate"]["hard_limit_cpus"], request["gate"]["customer_used_cpus"]) = (json!(0.1), json!(0.0985));
        let told = line(&request);
        assert!(
            told.ends_with("the customer is over its quota: the customer uses 0.0985 of 0.1 CPUs, pressure severe"),
            "{told}"
        );
        for (column, of) in LINE_HEADER.split_whitespace().zip(["10:40", "1f3a", "web", "ann", "shedd", "quota"]) {
            assert_eq!(LINE_HEADER.find(column), told.find(of), "{column}");
        }
    }

    #[test]
    fn a_line_without_a_gate_names_the_last_attempt() {
        let mut request = refused();
        (request["gate"], request["reason"], request["customer"]) = (json!(null), json!("no-backend"), json!(null));
        request["failed_attempts"] = json!([{ "backend": "10.0.0.1:80", "error": "connection refused" }]);
        let told = line(&request);
        assert!(
            told.ends_with(" -  GET /search: no backend is usable; last attempt at 10.0.0.1:80: connection refused"),
            "{told}"
        );
    }

    #[test]
    fn request_over_its_limit_shows_the_limit_and_the_time() {
        let mut request = refused();
        request["at"] = json!(1_764_326_400.125);
        (request["gate"], request["reason"]) = (json!(null), json!("rate-limit"));
        request["request_limit"] =
            json!({ "requests_per_second": 9.999_999_999, "burst": 20, "retry_after_ms": 42.2, "dry_run": false });
        let limit = "over 10 requests per second; burst 20, next request after 43 ms";
        assert!(whole(&request).contains(&format!("\n  limit       {limit}\n")), "{}", whole(&request));
        assert!(line(&request).ends_with(limit), "{}", line(&request));
        request["request_limit"]["dry_run"] = json!(true);
        assert!(whole(&request).contains("over 10 requests per second (dry run: admitted); burst 20"));
    }

    #[test]
    fn a_quota_refusal_shows_limit_and_use() {
        let mut request = refused();
        request["gate"] = json!({
            "decision": "quota", "dry_run": false, "expected_cost_ms": 2.5, "pressure": "none",
            "hard_limit_cpus": 0.1, "customer_used_cpus": 0.0985, "customer_debt_cpu_s": 0.0,
        });
        let line =
            "  gate        quota: the customer uses 0.0985 of 0.1 CPUs; expected cost 2.5 ms of CPU, pressure none\n";
        assert!(whole(&request).contains(line), "{}", whole(&request));
        request["gate"]["customer_debt_cpu_s"] = json!(3.5);
        let line = "quota: the customer uses 0.0985 of 0.1 CPUs and owes 3.5 CPU-seconds for earlier requests; ";
        assert!(whole(&request).contains(line), "{}", whole(&request));
    }

    #[test]
    fn refusal_by_a_limit_over_the_fleet_shows_cut_and_rate() {
        let mut request = refused();
        request["gate"] = json!({
            "decision": "quota", "dry_run": false, "expected_cost_ms": 2.5, "pressure": "none",
            "fleet_limit_cpus": 4.0, "fleet_rate_cpus": 0.42, "fleet_used_cpus": 3.9, "fleet_demand_cpus": 9.5,
            "fleet_cut": "sheddable", "fleet_cut_admitted": 0.31, "fleet_dry_run": false,
        });
        let line = "quota: limit over the fleet: cut at sheddable, 31% of it admitted; this task holds 0.42 of 4 CPUs; \
                    all tasks use 3.9, and 9.5 are asked for; expected cost 2.5 ms";
        assert!(whole(&request).contains(line), "{}", whole(&request));
        (request["gate"]["fleet_cut"], request["gate"]["fleet_dry_run"]) = (json!(null), json!(true));
        let line = "quota: limit over the fleet (dry run of the limit): the rate of this task is used up; ";
        assert!(whole(&request).contains(line), "{}", whole(&request));
        request["gate"]["fleet_group"] = json!("free");
        let line =
            "quota: limit of group free over the fleet (dry run of the limit): the rate of this task is used up; ";
        assert!(whole(&request).contains(line), "{}", whole(&request));
    }

    #[test]
    fn choice_by_a_key_shows_source_home_and_place() {
        let mut request = refused();
        assert!(!whole(&request).contains("  hash "));
        for (place, told) in [
            ("first", "sent there"),
            ("moved", "moved, as the home was unusable"),
            ("overflow", "overflow, as the home was at its bound, failing, in slow start or tried before"),
        ] {
            request["hash"] = json!({ "key": "header:x-user", "home": "10.0.0.1:80", "place": place });
            let line = format!("  hash        key header:x-user, home 10.0.0.1:80: {told}\n");
            assert!(whole(&request).contains(&line), "{}", whole(&request));
        }
        request["hash"] = json!({ "key": "path", "home": null, "place": null });
        assert!(whole(&request).contains("  hash        key path\n"), "with localities");
        request["hash"] = json!({ "key": null, "home": null, "place": "unkeyed" });
        assert!(whole(&request).contains("  hash        no key: a least loaded backend\n"));
    }

    #[test]
    fn the_cause_is_shown_beside_the_reason() {
        let mut request = refused();
        (request["reason"], request["cause"]) = (json!("no-backend"), json!("connect-failed"));
        assert!(whole(&request).contains("refused with 503, no-backend (connect-failed), "), "{}", whole(&request));
    }

    #[test]
    fn attempts_are_told_with_what_came_of_them() {
        let mut request = refused();
        request["failed_attempts"] = json!([{
            "backend": "10.0.0.1:80", "after_ms": 1.5, "reason": "connect-failed", "error": "refused",
            "next": "sent to another backend: nothing had been sent before",
        }]);
        let told = whole(&request);
        let attempt = "  attempt     10.0.0.1:80 after 1.5 ms: connect-failed: refused; sent to another backend: nothing had been sent before\n";
        assert!(told.contains(attempt), "{told}");
    }

    #[test]
    fn the_locality_is_told_with_the_backend() {
        let mut request = refused();
        request["backend"] = json!("10.0.0.1:80");
        assert!(whole(&request).contains(", backend 10.0.0.1:80, "));
        request["locality"] = json!("far");
        assert!(whole(&request).contains(", backend 10.0.0.1:80 in far, "));
    }

    #[test]
    fn a_list_says_how_far_back_it_reaches() {
        let remembered = [json!({ "outcome": "refused", "requests": 7, "reaches_back_s": 300.0 })];
        let told = list(&[refused()], &remembered);
        assert!(told.lines().nth(1).is_some_and(|line| line.ends_with("GET /search  customer ann")), "{told}");
        assert!(told.ends_with("remembered: 7 refused (back to 5 min ago)\n"), "{told}");
        assert_eq!(list(&[], &[]), "no requests are remembered yet\n");
        assert!(list(&[], &remembered).starts_with("no match; remembered: 7 refused"));
    }
}
