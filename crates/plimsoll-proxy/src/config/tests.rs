//! Whole files: examples pass, all mistakes are found, printed settings read back the same.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll::client::Check;

use super::*;

/// A folder at the top of the repository.
pub(super) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// The TOML files of a folder, sorted.
fn toml_files(name: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

const MINIMAL: &str = "[[listeners]]\naddress = \"127.0.0.1:8080\"\n[[routes]]\ncluster = \"web\"\n[clusters.web]\nbackends = [\"10.0.0.1:80\"]\n";

fn problems(text: &str) -> Vec<String> {
    match Config::parse("test.toml", text) {
        Ok(_) => Vec::new(),
        Err(error) => error.problems().iter().map(|problem| format!("{}: {}", problem.path, problem.reason)).collect(),
    }
}

#[test]
fn every_example_passes_and_prints_a_file_that_says_the_same() {
    let files = toml_files("examples");
    assert!(files.len() >= 5, "only {} examples", files.len());
    for file in files {
        let config = Config::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let printed = config.print();
        let again = Config::parse("printed", &printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(again, config, "{}", file.display());
        assert_eq!(again.print(), printed, "{}", file.display());
    }
}

#[test]
fn one_example_shows_every_setting() {
    let text = fs::read_to_string(folder("examples/all-options.toml")).unwrap();
    for setting in plimsoll_config::settings::<RawConfig>() {
        let shows = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{} = ", setting.key));
        assert!(text.lines().any(shows), "examples/all-options.toml lacks {}.{}", setting.table, setting.key);
    }
}

/// Each file has one kind of mistake, or a few, and beside it the problems that are to be found:
/// one per line as `line:column: path: reason`, with its help indented below. UPDATE_EXPECT=1
/// writes what is found now.
#[test]
fn bad_file_reports_all_its_problems() {
    let files = toml_files("tests/bad-configs");
    assert!(files.len() >= 25, "only {} files", files.len());
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).unwrap();
        let found = match Config::parse(&name, &text) {
            Ok(_) => String::new(),
            Err(error) => format!("{error}\n"),
        };
        let expect = file.with_extension("expect");
        if update {
            fs::write(&expect, &found).unwrap();
        }
        let expected = fs::read_to_string(&expect).unwrap_or_default();
        if found.is_empty() || found != expected {
            wrong.push(format!("== {name}: expected\n{expected}== found\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_setting_is_in_the_documentation_with_its_default() {
    let documentation = fs::read_to_string(folder("docs/configuration.md")).unwrap();
    let mut section = String::new();
    let mut rows = Vec::new();
    for line in documentation.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.split('`').nth(1).unwrap_or_default().replace(['[', ']'], "");
        } else if let Some(row) = line.strip_prefix("| `") {
            let cells: Vec<&str> = row.split(" | ").collect();
            rows.push((
                section.clone(),
                cells[0].trim_end_matches('`').to_owned(),
                cells[1].trim_matches('`').to_owned(),
            ));
        }
    }
    let expected: Vec<_> = plimsoll_config::settings::<RawConfig>()
        .into_iter()
        .map(|setting| {
            let machine_dependent = setting.key == "threads";
            let default = if machine_dependent {
                "number of cores".to_owned()
            } else {
                setting.default.unwrap_or_else(|| "none".to_owned())
            };
            (setting.table, setting.key.to_owned(), default)
        })
        .collect();
    for setting in &expected {
        assert!(rows.contains(setting), "docs/configuration.md lacks, or gives another default for, {setting:?}");
    }
    for row in &rows {
        assert!(expected.contains(row), "docs/configuration.md has a setting that does not exist: {row:?}");
    }
}

#[test]
fn the_smallest_file_is_six_lines() {
    let config = Config::parse("test.toml", MINIMAL).unwrap();
    assert_eq!(config.admin().unwrap().to_string(), "127.0.0.1:9900");
    assert_eq!(config.client("web").check, Check::Tcp);
    assert_eq!(config.routes_of("127.0.0.1:8080").count(), 1);
}

#[test]
fn syntax_of_another_program_is_named_once_with_a_small_file() {
    for (text, name) in [
        ("listeners:\n  - address: 127.0.0.1:8080\nclusters:\n  web:\n    backends: [10.0.0.1:80]\n", "YAML"),
        ("{\n  \"listeners\": [{\"address\": \":8080\"}]\n}\n", "JSON"),
        ("frontend www\n    bind *:8080\n    default_backend web\n", "an HAProxy configuration"),
        ("upstream web {\n    least_conn;\n    server 10.0.0.1:80;\n}\n", "an nginx configuration"),
    ] {
        let error = Config::parse("test", text).unwrap_err();
        let [problem] = error.problems() else { panic!("{error}") };
        assert_eq!(problem.reason, format!("this looks like {name}, but Plimsoll reads TOML"));
        let (_, example) = problem.help.split_once('\n').expect("a small file");
        Config::parse("example", example).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn misspelt_header_is_one_problem_and_its_table_is_checked() {
    for (theirs, ours) in
        [("[[listener]]", "[[listeners]]"), ("[[frontend]]", "[[listeners]]"), ("[[route]]", "[[routes]]")]
    {
        let error = Config::parse("test", &MINIMAL.replace(ours, theirs)).unwrap_err();
        let [problem] = error.problems() else { panic!("{error}") };
        assert_eq!(problem.help, format!("did you mean {ours}?"), "{theirs}");
    }
    let text = MINIMAL.replace("[clusters.web]", "[upstreams.web]").replace("10.0.0.1:80", "10.0.0.1");
    assert_eq!(
        problems(&text),
        ["upstreams: there is no such setting", "clusters.web.backends[0]: \"10.0.0.1\" has no port"]
    );
}

#[test]
fn misspelt_required_setting_is_not_missing_as_well() {
    assert_eq!(problems(&MINIMAL.replace("address", "bind")), ["listeners[0].bind: there is no such setting"]);
    assert_eq!(problems(&MINIMAL.replace("backends", "servers")), ["clusters.web.servers: there is no such setting"]);
}

#[test]
fn table_written_as_a_value_is_answered_with_the_table() {
    for (setting, expected) in [
        ("tls = true", "write [clusters.web.tls]: the empty table is enough"),
        ("tls = false", "remove it: it is off without the table [clusters.web.tls]"),
        ("inbound = true", "write a table, [clusters.web.inbound], with pid_file = \"/run/app.pid\""),
        ("retry = \"off\"", "write max_attempts = 1 below [clusters.web.retry]"),
        ("throttle = false", "write policy = \"off\" below [clusters.web.throttle]"),
    ] {
        let error = Config::parse("test", &format!("{MINIMAL}{setting}\n")).unwrap_err();
        let [problem] = error.problems() else { panic!("{error}") };
        assert_eq!(problem.help, expected, "{setting}");
    }
}

/// Help texts must be right: an empty table where they say so, and the setting that turns a table
/// off.
#[test]
fn settings_that_help_names_are_accepted() {
    for table in [
        "[clusters.web.tls]",
        "[clusters.web.retry]\nmax_attempts = 1",
        "[clusters.web.throttle]\npolicy = \"off\"",
        "[clusters.web.health]\ncheck = \"none\"",
        "[clusters.web.outlier]\nconsecutive_failures = \"off\"\nsuccess_rate_stdev = \"off\"",
        "[clusters.web.slow_start]\nwindow = \"off\"",
        "[clusters.web.subset]\nsize = \"off\"",
        "[admin]\nlisten = \"off\"",
        "[access_log]\npath = \"off\"",
        "[explain]\nentries = \"off\"",
    ] {
        assert_eq!(problems(&format!("{MINIMAL}{table}\n")), [""; 0], "{table}");
    }
}

#[test]
fn inbound_with_a_backend_on_another_machine_is_a_problem() {
    let with = |backend: &str, process: &str| {
        problems(&format!("{}[clusters.web.inbound]\n{process}\n", MINIMAL.replace("10.0.0.1:80", backend)))
    };
    let elsewhere = "clusters.web.inbound: protects a process of this machine, but backends[0] is at 10.0.0.1";
    assert_eq!(with("10.0.0.1:80", "pid_file = \"/run/app.pid\""), [elsewhere]);
    assert_eq!(with("10.0.0.1:80", "pid = 7"), [elsewhere]);
    for backend in ["127.0.0.1:80", "[::1]:80", "0.0.0.0:80", "localhost:80", "app:80"] {
        assert_eq!(with(backend, "pid = 7"), [""; 0], "{backend}");
    }
    // A container has an address of its own.
    assert_eq!(with("10.0.0.1:80", "cgroup = \"/sys/fs/cgroup/app\""), [""; 0]);
}

#[test]
fn process_that_is_not_there_is_a_warning() {
    let folder = std::env::temp_dir().join(format!("plimsoll-warnings-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("app.pid");
    let warnings = |process: &str| {
        let text = format!("{}[clusters.web.inbound]\n{process}\n", MINIMAL.replace("10.0.0.1", "127.0.0.1"));
        let warnings = Config::parse("test", &text).unwrap().warnings();
        warnings.into_iter().map(|warning| format!("{}: {}", warning.path, warning.reason)).collect::<Vec<_>>()
    };
    let by_file = format!("pid_file = \"{}\"", file.display());
    let [warning] = &warnings(&by_file)[..] else { panic!("no warning") };
    assert!(
        warning.starts_with(&format!("clusters.web.inbound.pid_file: {} cannot be read: ", file.display())),
        "{warning}"
    );
    fs::write(&file, "soon").unwrap();
    assert!(warnings(&by_file)[0].ends_with("does not hold a process id"));
    fs::write(&file, "1\n").unwrap();
    assert_eq!(warnings(&by_file), [""; 0]);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(warnings("pid = 4294967295"), ["clusters.web.inbound.pid: there is no process 4294967295"]);
    assert!(
        warnings("cgroup = \"/nonexistent\"")[0].starts_with("clusters.web.inbound.cgroup: /nonexistent/cpu.stat ")
    );
}

#[test]
fn layout_does_not_count_in_comparisons_and_values_do() {
    let spaced = MINIMAL.replace('\n', "\n\n# text\n");
    assert_eq!(Config::parse("a", MINIMAL).unwrap(), Config::parse("b", &spaced).unwrap());
    assert_ne!(Config::parse("a", MINIMAL).unwrap(), Config::parse("a", &MINIMAL.replace(".1:80", ".2:80")).unwrap());
}

#[test]
fn default_gives_way_to_a_setting_but_two_settings_contradict() {
    let short = format!("{MINIMAL}request_timeout = \"500ms\"\n[clusters.web.health]\ninterval = \"1s\"\n");
    let config = Config::parse("test.toml", &short).unwrap();
    let cluster = &config.clusters()["web"];
    assert_eq!(cluster.requests.connect_timeout, cluster.requests.request_timeout);
    assert_eq!(cluster.health.timeout, cluster.balancer.checks.interval);
    let contradiction = format!("{MINIMAL}request_timeout = \"500ms\"\nconnect_timeout = \"1s\"\n");
    assert_eq!(problems(&contradiction), ["clusters.web.connect_timeout: 1s is longer than request_timeout (500ms)"]);
}

#[test]
fn weights_follow_utilization_more_slowly_than_it_is_known() {
    let weighted = |settings: &str| format!("{MINIMAL}[clusters.web.weighted]\n{settings}");
    let feedback = |settings: &str| {
        let config = Config::parse("test.toml", &weighted(settings)).unwrap();
        config.clusters()["web"].balancer.weighted.feedback.as_secs()
    };
    assert_eq!((feedback(""), feedback("smoothing = \"20s\"\n"), feedback("feedback = \"off\"\n")), (15, 41, 0));
    assert_eq!(
        problems(&weighted("feedback = \"3s\"\n")),
        ["clusters.web.weighted.feedback: the weights would swing: 3s is less than twice smoothing, and update (7s)"]
    );
    assert_eq!(problems(&weighted("feedback = \"3s\"\nsmoothing = 1\n")).len(), 1, "no echo");
}

#[test]
fn a_problem_has_no_echo() {
    let unreadable_backends = MINIMAL.replace("10.0.0.1:80", "10.0.0.1");
    assert_eq!(problems(&unreadable_backends), ["clusters.web.backends[0]: \"10.0.0.1\" has no port"]);
}

#[test]
fn a_file_that_is_not_there_is_a_problem_with_help() {
    let error = Config::load(Path::new("/nonexistent/plimsoll.toml")).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/plimsoll.toml: cannot be read: "), "{error}");
}

mod any_text {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Cuts and swaps of a good file reach deeper than random characters do.
        #[test]
        fn no_text_makes_the_reader_panic(cut in 0..600_usize, junk in "[\\PC\n]{0,12}", skip in 0..40_usize) {
            let text = fs::read_to_string(folder("examples/all-options.toml")).unwrap();
            let start = text.char_indices().map(|(i, _)| i).nth(cut * 7 % text.chars().count()).unwrap();
            let tail: String = text[start..].chars().skip(skip).collect();
            let changed = format!("{}{junk}{tail}", &text[..start]);
            if let Ok(config) = Config::parse("changed", &changed) {
                prop_assert_eq!(Config::parse("printed", &config.print()).unwrap(), config);
            }
        }
    }
}
