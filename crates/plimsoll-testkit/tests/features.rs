//! The features of the library: a server alone stays small, and each feature is described.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use cargo_metadata::MetadataCommand;

/// The most crates that a program with the server side alone is built from, itself included.
const MAX_OF_A_SERVER: usize = 40;
/// Crates that run a C compiler, or programs that build C.
const C_COMPILERS: &[&str] = &["aws-lc-sys", "bindgen", "cc", "cmake", "ring"];

/// The folder of the workspace.
fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/plimsoll-testkit is two deep")
}

#[test]
fn server_alone_is_small_and_needs_no_c_compiler() {
    let normal = packages("server", "normal");
    assert!(normal.contains("tokio") && normal.contains("plimsoll-core"), "present packages are found: {normal:?}");
    let with_program = normal.len() + 1;
    assert!(with_program <= MAX_OF_A_SERVER, "{with_program} crates, at most {MAX_OF_A_SERVER}: {normal:?}");
    let compilers = |features: &str| -> Vec<String> {
        let all = packages(features, "normal,build");
        all.into_iter().filter(|name| C_COMPILERS.contains(&name.as_str())).collect()
    };
    assert_eq!(compilers("server"), [""; 0], "a server must build without a C compiler");
    assert_eq!(
        compilers("client,server,serve,http1,http2,grpc"),
        [""; 0],
        "nor does anything need one but TLS and probes"
    );
    // Shows that the test can find one.
    assert_eq!(compilers("server,tls-ring"), ["cc", "ring"]);
}

/// The macros of tokio, prost and thiserror would be half of the time that such a program takes to
/// build.
#[test]
fn server_alone_needs_no_procedural_macro() {
    let macros = |features: &str| tree(features, "normal").lines().filter(|line| line.contains("(proc-macro)")).count();
    assert_eq!(macros("server"), 0);
    assert_ne!(macros("server,grpc"), 0, "the test can find one");
}

#[test]
fn every_feature_is_in_the_table_of_the_crate() {
    let mut metadata = MetadataCommand::new();
    let metadata = metadata.current_dir(workspace_root()).no_deps().other_options(vec!["--offline".into()]).exec();
    let metadata = metadata.expect("cargo metadata runs");
    for name in ["plimsoll", "plimsoll-wire", "plimsoll-stream"] {
        let package = metadata.packages.iter().find(|package| package.name.as_str() == name);
        let package = package.expect("it is in the workspace");
        let text = fs::read_to_string(workspace_root().join("crates").join(name).join("src/lib.rs"));
        let readme = fs::read_to_string(workspace_root().join("crates").join(name).join("README.md"));
        let text = text.expect("lib.rs is there") + &readme.expect("README.md is there");
        let missing: Vec<&String> = package
            .features
            .keys()
            .filter(|feature| *feature != "default" && !text.contains(&format!("`{feature}`")))
            .collect();
        assert!(missing.is_empty(), "{name}: neither lib.rs nor README.md describes {missing:?}");
    }
}

/// The packages that `plimsoll` with these features is built from, by name.
fn packages(features: &str, edges: &str) -> BTreeSet<String> {
    tree(features, edges).lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// The output of `cargo tree` for `plimsoll` by itself.
fn tree(features: &str, edges: &str) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments =
        ["tree", "--package", "plimsoll", "--no-default-features", "--features", features, "--edges", edges];
    let format = ["--prefix", "none", "--no-dedupe", "--offline"];
    let done = Command::new(cargo).args(arguments).args(format).current_dir(workspace_root()).output();
    let done = done.expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("cargo speaks UTF-8")
}
