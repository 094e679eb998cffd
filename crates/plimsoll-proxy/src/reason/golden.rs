//! Golden table of rejections: the name, the answers and the effects of each reason.
//!
//! `golden.txt` is the table. After an intended change of behaviour, run this test with
//! `PLIMSOLL_BLESS=1` to write it anew.

use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderMap, Response};
use plimsoll_core::rejection::Pushback;
use plimsoll_core::{Rejection, admit};
use plimsoll_wire::shed::{self, Shed};

use super::Refusal;
use crate::config::Trouble;
use crate::counts::Label as _;
use crate::degrade::{Substitute, trouble};
use crate::explain::{Reason, errors, may_be_only_counted};
use crate::request::answer;

const LATER: Option<Duration> = Some(Duration::from_millis(1_200));

fn fields(headers: &HeaderMap) -> String {
    let mut fields: Vec<_> = headers.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    fields.sort();
    fields.join(" ")
}

fn head<B>(response: &Response<B>) -> String {
    format!("{} {}", response.status().as_u16(), fields(response.headers()))
}

fn name(trouble: Option<Trouble>) -> &'static str {
    trouble.map_or("-", Trouble::name)
}

fn shed_reasons(out: &mut String) {
    for &reason in Rejection::SHED {
        let row = reason.row();
        writeln!(out, "{reason}").unwrap();
        let retry = row.header.unwrap().retry;
        let pushback = row.pushback.map(|pushback| if pushback == Pushback::AtOnce { "1" } else { "-1" });
        writeln!(out, "  table: {} {:?} {retry:?} {pushback:?}", row.http, shed::code(reason)).unwrap();
        writeln!(out, "  text: {}", row.text).unwrap();
        for (grpc, after) in [(false, None), (false, LATER), (true, None), (true, LATER)] {
            let response = shed::head(reason, grpc, after);
            writeln!(out, "  head, gRPC {grpc}, after {after:?}: {}", head(&response)).unwrap();
            writeln!(out, "    read: {:?}", Shed::read(response.status(), response.headers())).unwrap();
        }
        writeln!(out, "  by name: {:?}, of load: {}", Rejection::from_name(row.name), reason.is_of_load()).unwrap();
        let reported = row.reported.map(|reported| (row.name, reported.is_shortage, reported.affects_users));
        writeln!(out, "  report (name, shortage, affects users): {reported:?}").unwrap();
        writeln!(out, "  degraded as: {}", name(row.degraded)).unwrap();
        writeln!(out, "  at a gate: {}", Rejection::GATE.contains(&reason)).unwrap();
    }
}

fn gate_answers(out: &mut String) {
    let after = Some(Duration::from_secs(3));
    for (reason, after, title) in [
        (Rejection::Quota, after, "Quota, After(3s)"),
        (Rejection::Deadline, None, "Deadline, Never"),
        (Rejection::Overloaded, None, "Overloaded, Elsewhere"),
        (Rejection::Overloaded, after, "Overloaded, After(3s)"),
        (Rejection::OverloadedNoRetry, None, "Overloaded, Never"),
    ] {
        let shed = admit::Shed { reason, after };
        let (kind, advice) = title.split_once(", ").unwrap();
        assert_eq!(
            (format!("{:?}", shed.advice()).as_str(), reason.name().starts_with(&kind.to_lowercase())),
            (advice, true)
        );
        writeln!(out, "gate: {title} -> {reason}, {after:?}").unwrap();
    }
}

fn refusals(out: &mut String) {
    let listed = Refusal::ALL.iter().filter(|refusal| refusal.is_always_listed());
    for (place, &refusal) in listed.enumerate() {
        let (name, text) = (refusal.name(), refusal.text());
        let message = match refusal {
            Refusal::Rejected(shed) if shed.reason.row().gate.is_some() => &text,
            _ => text.strip_prefix(&format!("{name}: ")).unwrap(),
        };
        writeln!(
            out,
            "refusal {place}: {name} {} {:?} only counted: {}",
            refusal.status().as_u16(),
            refusal.code(),
            may_be_only_counted(name)
        )
        .unwrap();
        writeln!(out, "  text: {text} | {message}").unwrap();
        writeln!(out, "  explain: {:?}", Reason::of(name).words()).unwrap();
        writeln!(out, "  HTTP: {}", head(&answer::for_refusal(refusal, false))).unwrap();
        writeln!(out, "  gRPC: {}", head(&answer::for_refusal(refusal, true))).unwrap();
        let mut bytes = Vec::new();
        answer::write_refusal(&mut bytes, refusal);
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.split("\r\n").filter(|line| !line.starts_with("date:")).collect::<Vec<_>>();
        writeln!(out, "  bytes: {:?}", lines.join("|")).unwrap();
    }
}

fn library_errors(out: &mut String) {
    for error in errors() {
        let reason = Reason::of_error(&error).degraded_as(trouble::of_error(&error));
        writeln!(out, "error: {error}").unwrap();
        writeln!(out, "  reason: {}, explain: {:?}", error.reason(), reason.words()).unwrap();
        writeln!(out, "  reason of the table: {:?}", error.shed_reason()).unwrap();
        writeln!(out, "  HTTP: {} {:?}", head(&error.to_response(false)), error.to_response(false).body()).unwrap();
        writeln!(out, "  gRPC: {}", head(&error.to_response(true))).unwrap();
        writeln!(out, "  degraded as: {}", name(trouble::of_error(&error))).unwrap();
    }
}

fn degraded(out: &mut String) {
    writeln!(out, "default `on`: {:?}", Trouble::WITHOUT_SERVICE.map(Trouble::name)).unwrap();
    for substitute in Substitute::ALL {
        writeln!(out, "degraded {}: {:?}", substitute.index(), substitute.name()).unwrap();
    }
}

#[test]
fn reasons_keep_their_names_answers_and_effects() {
    let mut out = String::new();
    shed_reasons(&mut out);
    gate_answers(&mut out);
    refusals(&mut out);
    library_errors(&mut out);
    degraded(&mut out);
    writeln!(out, "labels of a gate: {:?}", Rejection::GATE.iter().map(|reason| reason.name()).collect::<Vec<_>>())
        .unwrap();
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/reason/golden.txt"), &out).unwrap();
    }
    assert_eq!(out, include_str!("golden.txt"));
}
