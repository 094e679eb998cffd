//! Checks the import table of the workspace, the purity of the core, and that the simulator takes
//! every decision from it.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use cargo_metadata::{DepKindInfo, DependencyKind, Metadata, MetadataCommand};

use self::source::{rust_files, workspace_root};

/// Each crate of the workspace, with the others that it may import. A new crate needs a line here.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("plimsoll-core", &[]),
    ("plimsoll-config", &["plimsoll-core"]),
    ("plimsoll-wire", &["plimsoll-core"]),
    ("plimsoll-http1", &[]),
    ("plimsoll-http2", &["plimsoll-core"]),
    ("plimsoll-tower", &["plimsoll-core"]),
    ("plimsoll-stream", &[]),
    ("plimsoll-system", &["plimsoll-core"]),
    ("plimsoll", &["plimsoll-core", "plimsoll-http1", "plimsoll-stream", "plimsoll-system", "plimsoll-wire"]),
    ("plimsoll-discover", &["plimsoll", "plimsoll-core", "plimsoll-stream"]),
    ("plimsoll-tls-config", &["plimsoll", "plimsoll-config"]),
    ("plimsoll-etcd", &["plimsoll", "plimsoll-config", "plimsoll-core", "plimsoll-stream", "plimsoll-tls-config"]),
    ("plimsoll-fleet", &["plimsoll", "plimsoll-core", "plimsoll-etcd"]),
    (
        "plimsoll-proxy",
        &[
            "plimsoll",
            "plimsoll-config",
            "plimsoll-core",
            "plimsoll-discover",
            "plimsoll-etcd",
            "plimsoll-fleet",
            "plimsoll-http1",
            "plimsoll-http2",
            "plimsoll-quota",
            "plimsoll-stream",
            "plimsoll-system",
            "plimsoll-tls-config",
            "plimsoll-wire",
        ],
    ),
    ("plimsoll-sim", &["plimsoll-config", "plimsoll-core"]),
    ("plimsoll-admin", &["plimsoll", "plimsoll-core", "plimsoll-stream", "plimsoll-system", "plimsoll-wire"]),
    (
        "plimsoll-quota",
        &[
            "plimsoll",
            "plimsoll-admin",
            "plimsoll-config",
            "plimsoll-core",
            "plimsoll-etcd",
            "plimsoll-stream",
            "plimsoll-tls-config",
        ],
    ),
    (
        "plimsoll-cli",
        &[
            "plimsoll",
            "plimsoll-admin",
            "plimsoll-config",
            "plimsoll-core",
            "plimsoll-etcd",
            "plimsoll-fleet",
            "plimsoll-proxy",
            "plimsoll-quota",
            "plimsoll-sim",
            "plimsoll-system",
            "plimsoll-wire",
        ],
    ),
    ("plimsoll-testkit", &["plimsoll-core"]),
];
const TESTKIT: &str = "plimsoll-testkit";

#[test]
fn crate_imports_only_crates_in_the_table() {
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
            faults.push(format!("{name} is not in the table: add it, with its allowed imports"));
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
fn core_is_no_std_and_without_unsafe_code() {
    let root = fs::read_to_string(workspace_root().join("crates/plimsoll-core/src/lib.rs")).expect("lib.rs is there");
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        assert!(root.lines().any(|line| line == attribute), "plimsoll-core lacks {attribute}");
    }
}

/// Words that name a clock, a global generator, a lock, I/O, or an order that differs between runs.
/// Tests within the source may not use them either.
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
/// The same for the simulator. It runs seeds on threads and reads scenarios from files, but its
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
fn core_names_no_clock_no_global_generator_no_lock() {
    let faults = naming("crates/plimsoll-core/src", IMPURE);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn simulator_names_no_clock_and_no_global_generator() {
    let faults = naming("crates/plimsoll-sim/src", IMPURE_IN_SIM);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Places in the code of `folder`, without comments, that name one of `words`.
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

/// Packages that the simulator must not depend on, even indirectly: runtimes, I/O, listeners,
/// thread pools.
const ABSENT_FROM_SIM: &[&str] = &["tokio", "mio", "hyper", "h2", "tonic", "axum", "async-io", "smol", "rayon"];
/// All packages that the core is built from.
const CORE_IS_MADE_OF: &[&str] = &["hashbrown", "libm", "plimsoll-core", "rand_core", "rand_pcg", "twox-hash"];

#[test]
fn core_and_simulator_depend_on_no_runtime() {
    let metadata = MetadataCommand::new()
        .current_dir(workspace_root())
        .other_options(vec!["--offline".into(), "--filter-platform".into(), host()])
        .exec()
        .expect("cargo metadata runs");
    let parts = |name: &str| parts(&metadata, name);
    let sim = parts("plimsoll-sim");
    assert!(sim.contains("plotters") && sim.contains("plimsoll-core"), "present packages are found: {sim:?}");
    let found: Vec<&str> = ABSENT_FROM_SIM.iter().copied().filter(|name| sim.contains(*name)).collect();
    assert!(found.is_empty(), "plimsoll-sim depends on {found:?}, if by way of others");
    assert_eq!(
        parts_alone("plimsoll-core"),
        CORE_IS_MADE_OF.iter().map(ToString::to_string).collect(),
        "the core's parts"
    );
    // Shows that the test can find a forbidden package.
    assert!(parts("plimsoll-proxy").contains("tokio"));
}

/// A package and all packages that it is built from, without those of tests and build scripts.
fn parts(metadata: &Metadata, name: &str) -> BTreeSet<String> {
    let nodes = &metadata.resolve.as_ref().expect("dependencies are resolved").nodes;
    let start = metadata.packages.iter().find(|package| package.name.as_str() == name).expect("it is in the workspace");
    let (mut seen, mut pending) = (BTreeSet::new(), vec![&start.id]);
    while let Some(id) = pending.pop() {
        if seen.insert(id) {
            let node = nodes.iter().find(|node| node.id == *id).expect("each package has a node");
            let is_normal = |kinds: &[DepKindInfo]| kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            pending.extend(node.deps.iter().filter(|dep| is_normal(&dep.dep_kinds)).map(|dep| &dep.pkg));
        }
    }
    seen.into_iter().map(|id| metadata[id].name.to_string()).collect()
}

/// The same of a package that is built by itself. In a build of the workspace, other packages switch
/// on features of the packages that they share with it.
fn parts_alone(name: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments =
        ["tree", "--package", name, "--edges", "normal", "--prefix", "none", "--format", "{p}", "--offline"];
    let done = Command::new(cargo).args(arguments).current_dir(workspace_root()).output().expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let lines = String::from_utf8(done.stdout).expect("cargo speaks UTF-8");
    lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// The platform of this build. Without it, the packages of other platforms, which are not fetched,
/// would be looked for.
fn host() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("-vV").output().expect("rustc runs").stdout;
    let said = String::from_utf8(said).expect("rustc speaks UTF-8");
    said.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host").to_owned()
}

/// Policies, algorithms and states that the simulator may name, by file, with the reason why that
/// decides nothing. Before adding a line, check whether the core can answer the question.
const MAY_NAME: &[(&str, &str)] = &[
    // The worked example is one of this policy.
    ("experiment/worked/mod.rs", "PolicyKind::LeastLoaded"),
    // The ledger is another machine, which must be kept and told of arrivals and departures.
    ("experiment/subset/assign.rs", "Algorithm::Ledger"),
    ("experiment/subset/measure.rs", "Algorithm::Ledger"),
    ("experiment/fleet/world/build.rs", "Algorithm::Ledger"),
    // It assigns backends itself, so an arm with discovery cannot have it: a message about a file.
    ("scenario/fleet_check.rs", "Algorithm::Ledger"),
    // The setting that differs between arms, for the axis of a figure.
    ("experiment/fleet/sweep.rs", "PolicyKind::Prequal"),
    ("experiment/fleet/sweep.rs", "ProbeRule::HotCold"),
    ("experiment/fleet/sweep.rs", "ProbeRule::Linear"),
    // Value of a field until the file is read.
    ("scenario/fleet.rs", "Algorithm::Rocksteadier"),
    ("scenario/subset.rs", "Algorithm::Random"),
    // A request that has no backend yet.
    ("model/request.rs", "BackendId::new"),
];
/// Types that only the core may distinguish or construct.
const CORE_DECIDES_BY: &[&str] = &["PolicyKind::", "Algorithm::", "ProbeRule::", "State::", "BackendId::"];
/// Uses of these that name no variant: lists, defaults, constructors from a name.
const NAMES_NOTHING: &[&str] = &["ALL", "default", "from_str"];

/// A simulator with decisions of its own would distinguish policies, algorithms or states of
/// backends, or construct backend ids. So it may name none of them, except where [`MAY_NAME`] gives
/// the reason.
#[test]
fn simulator_distinguishes_no_policy_algorithm_or_state() {
    let mut found = BTreeSet::new();
    for (file, line) in code_of_the_simulator() {
        for part in CORE_DECIDES_BY {
            for (at, _) in line.match_indices(part) {
                let is_whole = !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                let rest = &line[at + part.len()..];
                let name = &rest[..rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())];
                if is_whole && !NAMES_NOTHING.contains(&name) {
                    found.insert((file.clone(), format!("{part}{name}")));
                }
            }
        }
    }
    let allowed: BTreeSet<(String, String)> =
        MAY_NAME.iter().map(|(file, code)| (file.to_string(), code.to_string())).collect();
    let beyond: Vec<_> = found.difference(&allowed).collect();
    assert!(beyond.is_empty(), "the core tells these apart, not the simulator: {beyond:?}");
    let stale: Vec<_> = allowed.difference(&found).collect();
    assert!(stale.is_empty(), "these are allowed and not there any more: {stale:?}");
}

/// The core decides the backend of every request and connection.
#[test]
fn simulator_takes_every_backend_from_the_core() {
    let code = code_of_the_simulator();
    let places = |wanted: &dyn Fn(&str) -> bool| -> BTreeSet<(&str, &str)> {
        code.iter().filter(|(_, line)| wanted(line)).map(|(file, line)| (file.as_str(), line.trim())).collect()
    };
    // The one place where a request gets its backend, out of a pick.
    let requests = "experiment/fleet/world/requests.rs";
    assert_eq!(
        places(&|line| line.contains("request.backend =") || line.contains("request.id =")),
        BTreeSet::from([(requests, "request.backend = client.backend(id);"), (requests, "request.id = id;"),])
    );
    for (asked, file) in [
        ("balancer.pick_for(", requests),
        ("balancer.poll_probe(", "experiment/fleet/world/upkeep.rs"),
        ("subset::order(", "experiment/fleet/world/build.rs"),
        (".order(", "experiment/fleet/world/build.rs"),
        ("order(&self.config", "experiment/subset/assign.rs"),
        ("subset.members()", "model/client.rs"),
        ("subset.on_state(", "model/client.rs"),
        ("balancer.pick(", "experiment/worked/mod.rs"),
        ("rejection_probability(", "experiment/worked/mod.rs"),
    ] {
        let calls = |line: &str| line.contains(asked);
        assert!(places(&calls).iter().any(|(at, _)| *at == file), "{file} does not ask the core by `{asked}`");
    }
}

/// The folder of algorithms that no shell offers.
const REFERENCE: &str = "reference/";
/// The files that may use an algorithm of [`REFERENCE`], and the reason.
const MAY_COMPARE: &[(&str, &str)] = &[
    // Settings of an arm, as the plan holds them and as the file gives them.
    ("experiment/shedding/plan.rs", "schedule::Schedule"),
    ("scenario/shedding.rs", "schedule::Schedule"),
    // Arms for comparison with the shipped throttle and gate.
    ("experiment/shedding/world/mod.rs", "procrustean::"),
    ("experiment/tiers/world/caller.rs", "admission_control::AdmissionControl"),
    // A worked example of another system.
    ("experiment/worked/mod.rs", "aperture::"),
];

/// An experiment that used a reference as the shipped code would plan capacity that no user has.
#[test]
fn simulator_uses_references_only_where_the_table_says() {
    let mut found = BTreeSet::new();
    let mut defined = BTreeSet::new();
    for (file, line) in code_of_the_simulator() {
        match file.strip_prefix(REFERENCE) {
            Some(name) => {
                defined.insert(name.trim_end_matches(".rs").to_owned());
                assert!(!line.contains("crate::"), "{file} depends on other code of the simulator: {line}");
            }
            None => found.extend(line.split_once("reference::").map(|(_, used)| (file.clone(), used.to_owned()))),
        }
    }
    let is_used =
        |(file, algorithm): &(&str, &str)| found.iter().any(|(at, used)| at == file && used.starts_with(algorithm));
    let is_allowed = |(file, used): &&(String, String)| {
        MAY_COMPARE.iter().any(|(at, algorithm)| at == file && used.starts_with(algorithm))
    };
    let beyond: Vec<_> = found.iter().filter(|use_of| !is_allowed(use_of)).collect();
    assert!(beyond.is_empty(), "the core decides these, not a reference: {beyond:?}");
    let stale: Vec<_> = MAY_COMPARE.iter().filter(|row| !is_used(row)).collect();
    assert!(stale.is_empty(), "these are allowed and no longer there: {stale:?}");
    defined.remove("mod");
    let listed: BTreeSet<String> =
        MAY_COMPARE.iter().filter_map(|(_, used)| used.split("::").next()).map(str::to_owned).collect();
    assert_eq!(listed, defined, "an algorithm without a use, or a use without an algorithm");
}

/// No function, branch or implementation by the name of a decision.
#[test]
fn simulator_defines_no_decision() {
    let names = policy_and_algorithm_names();
    assert!(names.contains(&"round-robin") && names.contains(&"rocksteadier"), "{names:?}");
    let mut faults = Vec::new();
    for (file, line) in code_of_the_simulator() {
        let branches =
            |name: &&&str| [format!("\"{name}\" =>"), format!("== \"{name}\"")].iter().any(|it| line.contains(it));
        for name in names.iter().filter(branches) {
            faults.push(format!("{file}: a branch for \"{name}\", which is the core's part: {line}"));
        }
        let defines =
            ["fn pick", "fn choose", "fn is_usable", "fn is_healthy", "impl Policy", "match policy", "match algorithm"];
        for decision in defines.iter().filter(|decision| line.contains(**decision)) {
            faults.push(format!("{file}: `{decision}` decides, which is the core's part"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A scenario names policies and algorithms, and describes none: it is data alone, with only names
/// of the core.
#[test]
fn scenario_names_only_decisions_of_the_core() {
    let names = policy_and_algorithm_names();
    let folder = workspace_root().join("scenarios");
    let (mut files, mut named) = (0, BTreeSet::new());
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let file = entry.expect("a readable entry").path();
        assert!(file.extension().is_some_and(|extension| extension == "toml"), "{} is no data", file.display());
        files += 1;
        let text = fs::read_to_string(&file).expect("a scenario is readable");
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            for key in ["policy = \"", "algorithm = \""] {
                for (at, _) in line.match_indices(key) {
                    let name = line[at + key.len()..].split('"').next().unwrap_or_default();
                    assert!(names.contains(&name), "{}: {name} is no policy or algorithm of the core", file.display());
                    named.insert(name.to_owned());
                }
            }
        }
    }
    assert!(files > 0);
    let tried = |name: &&str| named.contains(*name);
    let policies: Vec<&str> = plimsoll_core::pick::PolicyKind::ALL.iter().map(|policy| policy.name()).collect();
    assert!(policies.iter().all(tried), "each policy is tried by some scenario: {named:?} of {policies:?}");
}

/// The simulator's code, by file: lines without comments and without tests.
fn code_of_the_simulator() -> Vec<(String, String)> {
    let mut code = Vec::new();
    for folder in ["crates/plimsoll-sim/src", "crates/plimsoll-cli/src/sim"] {
        let folder = workspace_root().join(folder);
        for file in rust_files(&folder) {
            let name =
                file.strip_prefix(&folder).expect("it is in the folder").to_str().expect("plain names").to_owned();
            if name.ends_with("tests.rs") || name.contains("tests/") {
                continue;
            }
            let text = fs::read_to_string(&file).expect("source is readable");
            let source = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = source.lines().map(|line| line.split("//").next().unwrap_or_default().trim_end());
            code.extend(lines.filter(|line| !line.is_empty()).map(|line| (name.clone(), line.to_owned())));
        }
    }
    code
}

fn policy_and_algorithm_names() -> Vec<&'static str> {
    let policies = plimsoll_core::pick::PolicyKind::ALL.iter().map(|policy| policy.name());
    policies.chain(plimsoll_core::subset::Algorithm::ALL.iter().map(|algorithm| algorithm.name())).collect()
}
