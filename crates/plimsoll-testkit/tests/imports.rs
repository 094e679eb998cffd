//! Holds the import table of the workspace, and the purity of the core.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Each crate, and which of ours it may import. A crate that is not here has no place in the workspace yet.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("plimsoll-core", &[]),
    ("plimsoll-config", &["plimsoll-core"]),
    ("plimsoll-wire", &["plimsoll-core"]),
    ("plimsoll", &["plimsoll-core", "plimsoll-wire"]),
    ("plimsoll-proxy", &["plimsoll", "plimsoll-config", "plimsoll-core", "plimsoll-wire"]),
    ("plimsoll-sim", &["plimsoll-config", "plimsoll-core"]),
    ("plimsoll-admin", &["plimsoll-core", "plimsoll-wire"]),
    (
        "plimsoll-cli",
        &[
            "plimsoll",
            "plimsoll-admin",
            "plimsoll-config",
            "plimsoll-core",
            "plimsoll-proxy",
            "plimsoll-sim",
            "plimsoll-wire",
        ],
    ),
    ("plimsoll-testkit", &["plimsoll-core"]),
];
const TESTKIT: &str = "plimsoll-testkit";

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/plimsoll-testkit is two deep").to_owned()
}

#[test]
fn crates_import_only_what_the_table_allows() {
    let metadata = MetadataCommand::new()
        .current_dir(workspace_root())
        .no_deps()
        .other_options(vec!["--offline".into()])
        .exec()
        .expect("cargo metadata runs");
    let table: BTreeMap<&str, BTreeSet<&str>> =
        MAY_IMPORT.iter().map(|(name, may)| (*name, may.iter().copied().collect())).collect();
    let mut faults = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let Some(may) = table.get(name) else {
            faults.push(format!("{name} is not in the table: add it, with what it may import"));
            continue;
        };
        if package.manifest_path.parent().and_then(|dir| dir.file_name()) != Some(name) {
            faults.push(format!("{name} lies in a folder of another name"));
        }
        for dependency in package.dependencies.iter().filter(|d| table.contains_key(d.name.as_str())) {
            let allowed = match dependency.kind {
                // Tests may look from above: a crate's own users are its best tests.
                DependencyKind::Development => dependency.name == TESTKIT || may.contains(dependency.name.as_str()),
                _ => may.contains(dependency.name.as_str()),
            };
            if !allowed {
                faults.push(format!("{name} must not import {} ({:?})", dependency.name, dependency.kind));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_core_is_no_std_and_without_unsafe_code() {
    let root = fs::read_to_string(workspace_root().join("crates/plimsoll-core/src/lib.rs")).expect("lib.rs is there");
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        assert!(root.lines().any(|line| line == attribute), "plimsoll-core lacks {attribute}");
    }
}

/// Words that would let a clock, a global generator, a lock, I/O or an order that differs between runs in. In tests
/// within the source they are no better.
const IMPURE: &[&str] = &[
    "std::time",
    "Instant",
    "SystemTime",
    "thread_rng",
    "from_os_rng",
    "OsRng",
    "getrandom",
    "HashMap",
    "HashSet",
    "Mutex",
    "RwLock",
    "Atomic",
    "std::net",
    "std::fs",
    "std::env",
    "std::thread",
];
/// The same for the simulator, which runs seeds on threads and has its scenarios read from files, but whose
/// results must be a function of file and seed.
const IMPURE_IN_SIM: &[&str] = &[
    "Instant",
    "SystemTime",
    "thread_rng",
    "from_os_rng",
    "OsRng",
    "getrandom",
    "HashMap",
    "HashSet",
    "std::net",
    "tokio",
];

#[test]
fn the_core_names_no_clock_no_global_generator_no_lock() {
    let faults = naming("crates/plimsoll-core/src", IMPURE);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_simulator_names_no_clock_and_no_global_generator() {
    let faults = naming("crates/plimsoll-sim/src", IMPURE_IN_SIM);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Places in the code of `folder`, comments left out, that name one of `words`.
fn naming(folder: &str, words: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in rust_files(&workspace_root().join(folder)) {
        let text = fs::read_to_string(&file).expect("source is readable");
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let named: BTreeSet<&str> = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            let is_named =
                |word: &&&str| if word.contains("::") { code.contains(**word) } else { named.contains(**word) };
            for word in words.iter().filter(is_named) {
                faults.push(format!("{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    faults
}

/// What a simulator with decisions of its own would have: a policy, or a branch for one. The core's `PolicyKind` and
/// `Algorithm` know their names and make the machines, so nothing else has to tell them apart.
#[test]
fn the_simulator_holds_no_decision_of_its_own() {
    let names = policy_and_algorithm_names();
    assert!(names.contains(&"round-robin") && names.contains(&"rocksteadier"), "{names:?}");
    let mut faults = Vec::new();
    for file in rust_files(&workspace_root().join("crates/plimsoll-sim/src")) {
        if file.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("source is readable");
        let source = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in source.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let mut fault = |what: &str| faults.push(format!("{}:{}: {what}", file.display(), number + 1));
            let branches =
                |name: &&&str| [format!("\"{name}\" =>"), format!("== \"{name}\"")].iter().any(|it| code.contains(it));
            for name in names.iter().filter(branches) {
                fault(&format!("a branch for \"{name}\", which is the core's part"));
            }
            for decision in ["fn pick", "fn choose", "impl Policy", "match policy", "match algorithm"]
                .iter()
                .filter(|decision| code.contains(**decision))
            {
                fault(&format!("`{decision}` decides, which is the core's part"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn policy_and_algorithm_names() -> Vec<&'static str> {
    let policies = plimsoll_core::pick::PolicyKind::ALL.iter().map(|policy| policy.name());
    policies.chain(plimsoll_core::subset::Algorithm::ALL.iter().map(|algorithm| algorithm.name())).collect()
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder of source") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    assert!(!files.is_empty(), "no source in {}", dir.display());
    files
}
