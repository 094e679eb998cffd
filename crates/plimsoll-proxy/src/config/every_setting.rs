//! Each setting changed once in a file that has them all: the change that `check --diff` prints, and
//! its effect.

use std::fmt::Write as _;
use std::fs;

use plimsoll_config::{Setting, read};

use super::files::Files;
use super::tests::folder;
use super::*;

/// Values of all types; the first that differs from the file's and is valid is the new one.
const VALUES: &[&str] = &[
    "\"7s\"",
    "\"37MiB\"",
    "\"v1\"",
    "\"off\"",
    "7",
    "0.7",
    "0.6",
    "true",
    "false",
    "\"1.3\"",
    "\"human\"",
    "\"aggregate\"",
    "\"rfc7239\"",
    "\"sheddable\"",
    "\"p2c\"",
    "\"http1\"",
    "\"tcp\"",
    "\"pessimistic\"",
    "\"obey\"",
    "\"rendezvous\"",
    "\"probes\"",
    "\"optional\"",
    "[\"GET\"]",
    "[\"overloaded\"]",
    "[\"10.0.0.0/8\"]",
    "[\"spiffe://example.com/other/*\"]",
    "[\"10.0.0.9:80\"]",
    "[{ certificate = \"other.pem\", key = \"other.key\" }]",
    "\"127.0.0.1:7777\"",
    "\"/other/x\"",
    "\"/other/x/\"",
    "\"text/plain\"",
    "404",
    "\"http://127.0.0.1:7777\"",
    "\"zone\"",
    "\"json\"",
    "[\"utilization.gpu\"]",
    "\"40-41\"",
    "{ other = \"7\" }",
    "\"https\"",
    "\"host\"",
    "[\"path\"]",
    "\"strict\"",
    "\"address\"",
    "\"0600\"",
];

/// `examples/all-options.toml` with its comments that are settings as settings.
fn with_all() -> String {
    let text = fs::read_to_string(folder("examples/all-options.toml")).unwrap();
    let is_setting = |line: &str| {
        let key = line.split(" = ").next().unwrap_or(line);
        line.starts_with('[') || line.contains(" = ") && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let lines = text.lines().map(|line| line.strip_prefix("# ").filter(|rest| is_setting(rest)).unwrap_or(line));
    let text = lines.collect::<Vec<_>>().join("\n");
    let inline = "answer = { status = 429, body = \"come back later\", retry_after = \"10m\" }";
    assert!(text.contains(inline), "{inline}");
    text.replace(inline, "[routes.answer]\nstatus = 429\nbody = \"come back later\"\nretry_after = \"10m\"")
}

/// The first table of the file that `setting` can be in, by its header.
fn header(setting: &Setting, text: &str) -> String {
    let brackets = if setting.repeats { ["[[", "]]"] } else { ["[", "]"] };
    let written = |name: &str| format!("{}{}{}", brackets[0], setting.table.replace("NAME", name), brackets[1]);
    ["web", "beside", "acme"].map(written).into_iter().find(|header| text.lines().any(|line| line == header)).unwrap()
}

/// `text` with `setting` at `value`.
fn with(setting: &Setting, value: &str, text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let start = match setting.table.as_str() {
        "" => 0,
        _ => 1 + lines.iter().position(|line| *line == header(setting, text)).unwrap(),
    };
    let end = lines[start..].iter().position(|line| line.starts_with('[')).map_or(lines.len(), |length| start + length);
    let line = format!("{} = {value}", setting.key);
    let at = lines[start..end].iter().position(|line| line.starts_with(&format!("{} = ", setting.key)));
    match at.map(|at| start + at) {
        Some(at) => {
            let is_long = lines[at].ends_with('[');
            let last = if is_long { at + lines[at..].iter().position(|line| *line == "]").unwrap() } else { at };
            lines.splice(at..=last, [line.as_str()]);
        }
        None => lines.insert(start, &line),
    }
    lines.join("\n")
}

/// The configuration that `text` is, without rules over several settings; `None` if it is none.
fn config(text: &str) -> Option<Config> {
    let Read { root: raw, places, problems } = read::<RawConfig>(text);
    problems.is_empty().then(|| Config {
        route_names: route::names(&raw.routes),
        raw,
        files: Files::default(),
        source_name: "test".to_owned(),
        places,
    })
}

/// The file with `setting` at the first of the values that changes it.
fn changed(setting: &Setting, old: &Config) -> Option<Config> {
    let text = with_all();
    let valid = |value: &&str| config(&with(setting, value, &text));
    VALUES.iter().filter_map(valid).find(|new| !new.changes_since(old).is_empty())
}

fn changes(setting: &Setting) -> Vec<String> {
    let old = config(&with_all()).expect("a valid file");
    let changes = changed(setting, &old).map(|new| new.changes_since(&old));
    changes.unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn every_setting_names_its_effect_or_its_table_does() {
    for setting in plimsoll_config::settings::<RawConfig>() {
        assert!(setting.effect.is_some(), "the line of {}.{} lacks its effect", setting.table, setting.key);
    }
}

/// `tests/reload-effects.txt` has the effects of all settings that are older than this test; a
/// newer one needs no line. UPDATE_EXPECT=1 writes those of all.
#[test]
fn changed_setting_has_its_recorded_effect() {
    let (mut found, mut unchanged) = (String::new(), Vec::new());
    for setting in plimsoll_config::settings::<RawConfig>() {
        let changes = changes(&setting);
        if changes.is_empty() {
            unchanged.push(format!("{}.{}", setting.table, setting.key));
        }
        for change in changes {
            writeln!(found, "{change}").unwrap();
        }
    }
    assert!(unchanged.is_empty(), "no value of the list changes {unchanged:?}");
    let file = folder("tests/reload-effects.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, &found).unwrap();
    }
    let recorded = fs::read_to_string(file).unwrap();
    assert!(recorded.lines().count() > 150);
    for line in recorded.lines() {
        assert!(found.lines().any(|found| found == line), "no longer so: {line}");
    }
}

/// Tables and settings of a cluster that its client in the library does not have: of discovery, of
/// the process behind it, and of the keys of requests. TLS and probe keys come from files, which this
/// test does not read. `throttle.window` and `health.service` count only for another throttle and
/// another check than those in the file.
const NOT_OF_THE_CLIENT: &[&str] = &[
    "clusters.NAME.backends",
    "clusters.NAME.resolver",
    "clusters.NAME.discovery.",
    "clusters.NAME.tls.",
    "clusters.NAME.probes.keys",
    "clusters.NAME.inbound.",
    "clusters.NAME.throttle.window",
    "clusters.NAME.health.service",
    "clusters.NAME.hash.key",
    "clusters.NAME.hash.sticky.",
];

#[test]
fn other_settings_of_a_cluster_reach_its_client() {
    let old = config(&with_all()).expect("a valid file");
    let clients = |config: &Config| config.raw.clusters.keys().map(|name| config.client(name)).collect::<Vec<_>>();
    let mut forgotten = Vec::new();
    for setting in plimsoll_config::settings::<RawConfig>() {
        let name = format!("{}.{}", setting.table, setting.key);
        let is_of_client = name.starts_with("clusters.") && !NOT_OF_THE_CLIENT.iter().any(|not| name.starts_with(not));
        if is_of_client && changed(&setting, &old).is_some_and(|new| clients(&new) == clients(&old)) {
            forgotten.push(name);
        }
    }
    assert_eq!(forgotten, [""; 0]);
}
