//! A reason for a rejection is one row of the core's table, and one line of the docs.
//!
//! The test reads the code of all crates, tests left out. The name of a reason is written in the
//! table alone, and no other code tells the reasons apart one by one. Other lists have some of the
//! same words for other things, such as the state `lame-duck`; [`OTHER_SUBJECTS`] names them.

mod source;

use std::collections::BTreeSet;
use std::fs;

use plimsoll_core::Rejection;
use syn::visit::{self, Visit};
use syn::{Arm, Attribute, Expr, ImplItemFn, ItemFn, ItemMod, LitStr, Macro, Pat};

use self::source::{rust_files, workspace_root};

const TABLE: &str = "plimsoll-core/src/rejection.rs";

/// Files with a word of the table for something else, and the subject.
const OTHER_SUBJECTS: &[(&str, &[&str], &str)] = &[
    ("plimsoll-admin/src/metrics/clusters.rs", &["no-backend", "saturated"], "errors of a wait for a backend"),
    ("plimsoll-cli/src/answer/mod.rs", &["lame-duck"], "states of a server"),
    ("plimsoll-cli/src/control/status.rs", &["throttled"], "fields of the live state"),
    ("plimsoll-cli/src/demo/quota/fleet.rs", &["quota"], "a command of the program"),
    ("plimsoll-cli/src/fleet/follow.rs", &["quota"], "kinds of a process"),
    ("plimsoll-cli/src/load/record.rs", &["connect"], "failures of the load generator"),
    ("plimsoll-core/src/health/state.rs", &["lame-duck"], "states of a backend"),
    ("plimsoll-core/src/retry/decision.rs", &["deadline"], "reasons against a retry"),
    ("plimsoll-core/src/signal/mod.rs", &["memory"], "signals of load"),
    ("plimsoll-proxy/src/config/check.rs", &["quota"], "a table of the configuration"),
    ("plimsoll-proxy/src/connection/end_reason.rs", &["slow-body", "slow-head"], "ends of a connection"),
    ("plimsoll-proxy/src/listener/rejections.rs", &["memory"], "rejected connections"),
    ("plimsoll-quota/src/config.rs", &["customers"], "a table of the configuration"),
    ("plimsoll-quota/src/live/mod.rs", &["quota"], "the kind of a process"),
    ("plimsoll-sim/src/experiment/fleet/marks.rs", &["overloaded"], "series of a figure"),
    ("plimsoll-sim/src/experiment/shedding/world/mod.rs", &["customers"], "streams of random numbers"),
    ("plimsoll-sim/src/scenario/choices.rs", &["lame-duck", "overloaded"], "choices of a scenario"),
    ("plimsoll-sim/src/scenario/mod.rs", &["quota"], "kinds of a scenario"),
    ("plimsoll-sim/src/scenario/probes.rs", &["lame-duck"], "states of a server"),
    ("plimsoll-sim/src/scenario/quota.rs", &["customers"], "keys of a scenario"),
    ("plimsoll-sim/src/scenario/quota_check.rs", &["customers"], "keys of a scenario"),
    ("plimsoll-sim/src/scenario/shedding.rs", &["customers"], "keys of a scenario"),
    ("plimsoll-system/src/memory.rs", &["memory"], "files of the kernel"),
    ("plimsoll-system/src/scarce.rs", &["memory"], "names of resources"),
    ("plimsoll/src/client/failed_attempt.rs", &["deadline", "throttled"], "reasons against a retry"),
    ("plimsoll/src/metrics/clusters.rs", &["no-backend", "saturated"], "errors of a wait for a backend"),
    ("plimsoll/src/server/lifecycle.rs", &["lame-duck"], "phases of a server"),
];

/// Words of the table and matches on its reasons in one file.
#[derive(Default)]
struct Uses {
    words: BTreeSet<&'static str>,
    matches: usize,
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is_cfg = |attribute: &Attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    };
    attributes.iter().any(is_cfg)
}

impl Uses {
    fn text(&mut self, text: &str) {
        let is_said = |name: &&str| text == *name || text.starts_with(&format!("{name}:"));
        self.words.extend(Rejection::ALL.map(Rejection::name).iter().filter(|name| is_said(name)));
        let header = text.strip_prefix("reason=").and_then(|rest| rest.split(',').next());
        self.words.extend(header.and_then(Rejection::from_name).map(Rejection::name));
    }
}

/// Whether a pattern names a reason. An `if let` of one reason is no list of them.
fn names_reason(pattern: &Pat) -> bool {
    struct Found(bool);
    impl<'ast> Visit<'ast> for Found {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            self.0 |= path.segments.iter().any(|segment| segment.ident == "Rejection");
        }
    }
    let mut found = Found(false);
    found.visit_pat(pattern);
    found.0
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.text(&text.value());
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        self.matches += usize::from(names_reason(&arm.pat));
        visit::visit_arm(self, arm);
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        if let Expr::Macro(call) = expression
            && call.mac.path.is_ident("matches")
        {
            self.matches += usize::from(call.mac.tokens.to_string().contains("Rejection ::"));
        }
        visit::visit_expr(self, expression);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let tokens = call.tokens.to_string();
        tokens.split('"').skip(1).step_by(2).for_each(|text| self.text(text));
    }
}

#[test]
fn new_reason_is_one_row_and_its_docs_line() {
    let root = workspace_root();
    let crates = root.join("crates");
    let (mut of_table, mut elsewhere) = (Uses::default(), Vec::new());
    let sources = fs::read_dir(&crates).unwrap().map(|entry| entry.unwrap().path().join("src"));
    for path in sources.flat_map(|source| rust_files(&source)) {
        let name = path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned();
        let is_of_tests = ["/tests/", "/tests.rs", "/golden.rs"];
        if is_of_tests.iter().any(|part| name.contains(part)) {
            continue;
        }
        let mut uses = Uses::default();
        uses.visit_file(&syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap());
        if name == TABLE {
            of_table = uses;
        } else if !uses.words.is_empty() || uses.matches > 0 {
            elsewhere.push((name, uses.words.into_iter().collect::<Vec<_>>(), uses.matches));
        }
    }
    let names = BTreeSet::from(Rejection::ALL.map(Rejection::name));
    assert_eq!((of_table.words, of_table.matches), (names, 0), "the table has each name, and no match on reasons");
    elsewhere.sort();
    let other: Vec<_> = OTHER_SUBJECTS.iter().map(|(file, words, _)| ((*file).to_owned(), words.to_vec(), 0)).collect();
    assert_eq!(elsewhere, other, "a name or a match on reasons outside the table");

    let docs = fs::read_to_string(root.join("docs/answers.md")).unwrap();
    for rejection in Rejection::ALL {
        let name = format!("`{rejection}`");
        let is_its_line = |line: &str| line.split('|').nth(1).is_some_and(|cell| cell.contains(&name));
        assert!(docs.lines().any(is_its_line), "docs/answers.md has no line for {name}");
    }
}
