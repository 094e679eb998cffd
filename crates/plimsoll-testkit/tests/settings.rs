//! Structs of settings can grow: none that users fill in has a literal outside of its crate.
//!
//! The lists of `scripts/public-api` name the public structs. A struct of settings is one with
//! public fields and one of the names below.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The ends of the names of settings.
const NAMES: &[&str] = &["Config", "Material", "Options", "Policy", "Reports", "Settings"];
/// Complete by nature: the parameters of one formula. See decision 93.
const OPEN: &[&str] = &["BackoffConfig", "BudgetConfig", "SlowStartConfig", "SpillConfig", "SubsetConfig"];

fn list(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/plimsoll-testkit is two deep");
    fs::read_to_string(root.join("tests/public-api").join(name).with_extension("txt")).expect("the list is there")
}

/// The last part of a path, without its arguments.
fn last(path: &str) -> &str {
    let path = path.split(['<', ' ']).next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

fn is_setting(name: &str) -> bool {
    NAMES.iter().any(|end| name.ends_with(end))
}

/// The structs with public fields, and those of them that have a literal.
fn structs(list: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let fields = list.lines().filter_map(|line| line.strip_prefix("field ")?.split_once(": "));
    let with_fields: BTreeSet<&str> =
        fields.filter_map(|(path, _)| path.rsplit_once("::")).map(|(owner, _)| last(owner)).collect();
    let open = list.lines().filter_map(|line| line.strip_prefix("struct ")).map(last);
    let open = open.filter(|name| with_fields.contains(name)).collect();
    (with_fields, open)
}

#[test]
fn settings_have_no_literals_outside_of_their_crates() {
    let (library, core) = (list("plimsoll"), list("plimsoll-core"));
    let (mut settings, mut open) = structs(&library);
    settings.retain(|name| is_setting(name));
    open.retain(|name| is_setting(name));
    let (core_settings, core_open) = structs(&core);
    for line in library.lines().filter(|line| line.starts_with("use ")) {
        let name = line.rsplit_once(" = plimsoll_core::").map(|(_, path)| last(path));
        let Some(name) = name.filter(|name| is_setting(name) && core_settings.contains(name)) else { continue };
        settings.insert(name);
        if core_open.contains(name) {
            open.insert(name);
        }
    }
    for known in ["BalancerConfig", "ClusterConfig", "LoadReports", "RetryPolicy", "TlsMaterial"] {
        assert!(settings.contains(known), "the test finds {known}: {settings:?}");
    }
    let expected: BTreeSet<&str> = OPEN.iter().copied().collect();
    assert_eq!(open, expected, "add #[non_exhaustive], or a line to OPEN with its reason in decision 93");
}
