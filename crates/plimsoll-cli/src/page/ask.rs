//! Questions and commands to all proxies of the page, and their answers as one.
//!
//! A proxy that does not answer is named in the answer, and does not stop the others.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::watch::Desk;
use crate::admin::events::ask_text;
use crate::admin::failure::Failure;
use crate::admin::path::escaped;

/// Requests in an answer unless `last` says otherwise, and at most: as at one proxy.
const DEFAULT_LAST: usize = 50;
const MAX_LAST: usize = 1_000;

/// The answer of one proxy.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) address: String,
    pub(super) name: String,
    pub(super) result: Result<Value, Failure>,
}

/// The outcome at one proxy, as the page shows it.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    address: &'a str,
    name: &'a str,
    is_ok: bool,
    /// The state of the backend now.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
}

/// Sends the same request to all proxies at once. The answers are in their order.
pub(super) async fn all(desk: &Desk, method: Method, path: &str) -> Vec<Answer> {
    let mut asked = JoinSet::new();
    for (place, (address, name)) in desk.proxies.iter().cloned().zip(desk.labels()).enumerate() {
        let (method, path) = (method.clone(), path.to_owned());
        asked.spawn(async move {
            let text = ask_text(&address, method, &path).await;
            let result = text.and_then(|text| serde_json::from_str(&text).map_err(|error| Failure::no_json(&error)));
            (place, Answer { address, name, result })
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

impl Answer {
    fn outcome(&self) -> Outcome<'_> {
        let (address, name) = (self.address.as_str(), self.name.as_str());
        match &self.result {
            Ok(json) => Outcome { address, name, is_ok: true, state: json["state"].as_str(), error: None, help: None },
            Err(failure) => {
                let help = if let Failure::Refused { help, .. } = failure { Some(help.as_str()) } else { None };
                Outcome { address, name, is_ok: false, state: None, error: Some(failure.to_string()), help }
            }
        }
    }
}

/// The path of a command to a backend.
pub(super) fn switch_path(cluster: &str, backend: &str, verb: &str) -> String {
    format!("/api/v1/clusters/{}/backends/{}/{verb}", escaped(cluster), escaped(backend))
}

/// The outcome of a command: good if a proxy obeyed, and each answer.
pub(super) fn switched(backend: &str, answers: &[Answer]) -> (StatusCode, Value) {
    let outcomes: Vec<Outcome<'_>> = answers.iter().map(Answer::outcome).collect();
    let mut body = json!({ "address": backend, "proxies": outcomes });
    let status = status(answers);
    if status != StatusCode::OK {
        body["error"] = json!("no proxy obeyed");
        body["help"] = json!("the answer of each is in proxies");
    }
    (status, body)
}

/// The requests of all proxies, the latest first, each with its proxy.
pub(super) fn explained(answers: &mut [Answer], last: Option<usize>) -> (StatusCode, Value) {
    let mut requests: Vec<Value> = Vec::new();
    for answer in answers.iter_mut() {
        let Ok(json) = &mut answer.result else { continue };
        let Value::Array(found) = json["requests"].take() else { continue };
        requests.extend(found.into_iter().filter(Value::is_object).map(|mut request| {
            request["proxy"] = json!(answer.name);
            request
        }));
    }
    let at = |request: &Value| request["at"].as_f64().unwrap_or(0.0);
    requests.sort_by(|a, b| at(b).total_cmp(&at(a)));
    requests.truncate(last.unwrap_or(DEFAULT_LAST).min(MAX_LAST));
    let status = status(answers);
    let outcomes: Vec<Outcome<'_>> = answers.iter().map(Answer::outcome).collect();
    let mut body = json!({ "requests": requests, "remembered": remembered(answers), "proxies": outcomes });
    if status != StatusCode::OK {
        // That of a proxy which answered says more than that of one which did not.
        let refused = answers.iter().find(|answer| matches!(answer.result, Err(Failure::Refused { .. })));
        let first = refused.or(answers.first()).map(Answer::outcome);
        let (error, help) = first.map(|of| (of.error, of.help.map(ToOwned::to_owned))).unwrap_or_default();
        body["error"] = json!(error);
        body["help"] = json!(help.as_deref().unwrap_or("the answer of each proxy is in proxies"));
    }
    (status, body)
}

/// What the proxies remember, by outcome: the sum, and the time back to which all of them do.
fn remembered(answers: &[Answer]) -> Vec<Value> {
    let mut sums: BTreeMap<String, (u64, Option<f64>)> = BTreeMap::new();
    let lists = answers.iter().filter_map(|answer| answer.result.as_ref().ok()?["remembered"].as_array());
    for kind in lists.flatten() {
        let Some(outcome) = kind["outcome"].as_str() else { continue };
        let (requests, back) = sums.entry(outcome.to_owned()).or_default();
        *requests = requests.saturating_add(kind["requests"].as_u64().unwrap_or(0));
        *back = match (*back, kind["reaches_back_s"].as_f64()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        };
    }
    let kind =
        |(outcome, (requests, back))| json!({ "outcome": outcome, "requests": requests, "reaches_back_s": back });
    sums.into_iter().map(kind).collect()
}

/// 200 if one is good; else the answer of those that answered, if they agree.
fn status(answers: &[Answer]) -> StatusCode {
    let mut refused = Vec::new();
    for answer in answers {
        match &answer.result {
            Ok(_) => return StatusCode::OK,
            Err(Failure::Refused { status, .. }) => refused.push(*status),
            Err(_) => {}
        }
    }
    refused.dedup();
    match refused[..] {
        [status] => StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY),
        _ => StatusCode::BAD_GATEWAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str, result: Result<Value, Failure>) -> Answer {
        Answer { address: format!("{name}:9900"), name: name.to_owned(), result }
    }

    fn refused(status: u16) -> Failure {
        Failure::Refused { status, error: "there is no backend".to_owned(), help: "use one of: b".to_owned() }
    }

    fn lost() -> Failure {
        Failure::Unreachable("connection refused".to_owned())
    }

    #[test]
    fn command_is_good_if_one_obeys_and_each_answer_is_told() {
        let answers = [
            answer("a", Ok(json!({ "state": "lame-duck" }))),
            answer("b", Err(refused(404))),
            answer("c", Err(lost())),
        ];
        let (status, body) = switched("10.0.0.1:80", &answers);
        assert_eq!(status, 200);
        assert_eq!(
            body,
            json!({ "address": "10.0.0.1:80", "proxies": [
                { "address": "a:9900", "name": "a", "is_ok": true, "state": "lame-duck" },
                { "address": "b:9900", "name": "b", "is_ok": false, "error": "there is no backend", "help": "use one of: b" },
                { "address": "c:9900", "name": "c", "is_ok": false, "error": "connection refused" },
            ]})
        );
    }

    #[test]
    fn command_that_nobody_obeys_has_their_status_if_they_agree() {
        let status = |results: Vec<Failure>| {
            let answers: Vec<Answer> = results.into_iter().map(|failure| answer("a", Err(failure))).collect();
            switched("b", &answers).0.as_u16()
        };
        assert_eq!(status(vec![refused(404), refused(404), lost()]), 404);
        assert_eq!(status(vec![refused(404), refused(409)]), 502);
        assert_eq!(status(vec![lost()]), 502);
        let (_, body) = switched("b", &[answer("a", Err(lost()))]);
        assert_eq!(body["error"], "no proxy obeyed");
    }

    #[test]
    fn requests_are_in_one_order_with_their_proxies() {
        let of = |ats: &[f64]| {
            let requests: Vec<Value> = ats.iter().map(|at| json!({ "id": at.to_string(), "at": at })).collect();
            let kind = json!({ "outcome": "refused", "requests": ats.len(), "reaches_back_s": ats[0] });
            Ok(json!({ "requests": requests, "remembered": [kind] }))
        };
        let mut answers = [answer("a", of(&[9.0, 5.0])), answer("b", Err(lost())), answer("c", of(&[7.0, 3.0]))];
        let (status, body) = explained(&mut answers, Some(3));
        assert_eq!(status, 200);
        let told: Vec<(f64, &str)> = body["requests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|request| (request["at"].as_f64().unwrap(), request["proxy"].as_str().unwrap()))
            .collect();
        assert_eq!(told, [(9.0, "a"), (7.0, "c"), (5.0, "a")]);
        assert_eq!(body["remembered"], json!([{ "outcome": "refused", "requests": 4, "reaches_back_s": 7.0 }]));
        assert_eq!(body["proxies"][1]["error"], "connection refused");
    }

    #[test]
    fn question_that_all_refuse_has_their_error() {
        let mut answers = [answer("a", Err(lost())), answer("b", Err(refused(400)))];
        let (status, body) = explained(&mut answers, None);
        assert_eq!(
            (status.as_u16(), &body["error"], &body["help"]),
            (400, &json!("there is no backend"), &json!("use one of: b"))
        );
        let (status, body) = explained(&mut [answer("a", Err(lost()))], None);
        assert_eq!((status.as_u16(), &body["error"]), (502, &json!("connection refused")));
    }

    #[test]
    fn names_stay_one_part_of_the_path() {
        assert_eq!(switch_path("a/b", "[::1]:80", "drain"), "/api/v1/clusters/a%2Fb/backends/%5B%3A%3A1%5D%3A80/drain");
    }
}
