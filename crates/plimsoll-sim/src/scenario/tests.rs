//! Whole files: mistakes are all found, what is printed reads back the same, the documentation knows every setting.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use plimsoll_config::{Setting, Variants, print, settings, variants};
use plimsoll_core::pick::ProbeRule;

use super::*;
use crate::experiment::fleet;
use crate::experiment::fleet::plan::{Antagonist, Arrivals, Conduct, Cost, Happening, Skew};
use crate::experiment::probes::plan::Occurrence;
use crate::experiment::quota::plan::{Rule as Sharing, Spread};
use crate::experiment::shedding::plan::Shedder;
use crate::experiment::spill::plan::Rule;
use crate::experiment::tiers::plan::{Holding, Retries};

/// A folder at the top of the repository.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// The TOML files of a folder, sorted.
fn toml_files(name: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

const MINIMAL: &str = r#"
name = "minimal"
kind = "fleet"
[[backends]]
[[arms]]
name = "a"
[[checks]]
metric = "a.p50"
high = 1000
why = "a second is long"
"#;

fn problems(text: &str) -> Vec<String> {
    match Scenario::parse("test.toml", text) {
        Ok(_) => Vec::new(),
        Err(error) => error.problems().iter().map(|problem| format!("{}: {}", problem.path, problem.reason)).collect(),
    }
}

fn plan(text: &str) -> FleetPlan {
    match Scenario::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}")).experiment {
        Experiment::Fleet(plan) => *plan,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_smallest_file_has_a_group_of_backends_an_arm_and_a_check() {
    let scenario = Scenario::parse("test.toml", MINIMAL).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (scenario.title.as_str(), scenario.group.as_str(), scenario.seeds.as_slice()),
        ("minimal", "own", &[1, 2, 3][..])
    );
    let plan = plan(MINIMAL);
    assert_eq!(plan.backends, FleetPlan::default().backends);
    assert_eq!(plan.arms[0].balancer, FleetPlan::default().arms[0].balancer);
}

#[test]
fn file_without_checks_is_good() {
    let (explored, _) = MINIMAL.split_once("[[checks]]").unwrap();
    let scenario = Scenario::parse("test.toml", explored).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scenario.checks, []);
    assert_eq!(scenario.experiment, Scenario::parse("test.toml", MINIMAL).unwrap().experiment);
}

#[test]
fn a_default_gives_way_to_a_short_run_and_what_is_set_does_not() {
    let short = MINIMAL.replacen('\n', "\nduration = \"6s\"\n", 1);
    let plan = plan(&short);
    assert_eq!((plan.warmup.as_secs(), plan.sample_every.as_millis()), (2, 1000));
    let contradiction = short.replacen('\n', "\nwarmup = \"6s\"\n", 1);
    assert_eq!(problems(&contradiction), ["warmup: 6s is not shorter than the run (6s)"]);
}

#[test]
fn a_switch_is_to_another_policy_and_leaves_all_else() {
    let text = MINIMAL.replace(
        "name = \"a\"\n",
        "name = \"a\"\npolicy = \"p2c\"\nmax_active_requests = 7\n[[arms.switches]]\nat = \"30s\"\npolicy = \"weighted\"\n",
    );
    let arm = &plan(&text).arms[0];
    let switch = &arm.switches[0];
    assert_eq!((arm.balancer.policy.name(), switch.balancer.policy.name()), ("p2c", "weighted"));
    assert_eq!(switch.balancer.max_active_requests.get(), 7);
}

#[test]
fn without_a_kind_nothing_else_is_judged() {
    assert_eq!(problems("name = \"a\"\nfrob = 1\n"), ["kind: is missing"]);
    assert_eq!(problems("kind = \"flet\"\nfrob = 1\n"), ["kind: \"flet\" is not a kind of experiment"]);
}

/// Each file has one kind of mistake, or a few, and beside it the problems that are to be found: one per
/// line as `line:column: path: reason`, with its mend indented below. UPDATE_EXPECT=1 writes what is found now.
#[test]
fn every_bad_file_is_told_all_its_problems() {
    let files = toml_files("tests/bad-scenarios");
    assert!(files.len() >= 15, "only {} files", files.len());
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).unwrap();
        let found = match Scenario::parse(&name, &text) {
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

/// The root of a file as it is read, printed, and read again.
fn reads_back<S: Settings + PartialEq + std::fmt::Debug>(name: &str, text: &str) {
    let Read { root, problems, .. } = read::<File<S>>(text);
    assert_eq!(problems, [], "{name}");
    let printed = print(&root);
    let Read { root: again, problems, .. } = read::<File<S>>(&printed);
    assert_eq!(problems, [], "{name}:\n{printed}");
    assert_eq!((again.settings, again.checks), (root.settings, root.checks), "{name}:\n{printed}");
}

#[test]
fn what_is_printed_reads_back_the_same() {
    for file in toml_files("scenarios") {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.display().to_string();
        let Read { root: KindOnly(kind), .. } = read(&text);
        match kind {
            Kind::Fleet => reads_back::<FleetFile>(&name, &text),
            Kind::Shedding => reads_back::<SheddingFile>(&name, &text),
            Kind::Probes => reads_back::<ProbesFile>(&name, &text),
            Kind::Quota => reads_back::<QuotaFile>(&name, &text),
            Kind::Rollout => reads_back::<RolloutFile>(&name, &text),
            Kind::Spill => reads_back::<SpillFile>(&name, &text),
            Kind::Subset => reads_back::<SubsetFile>(&name, &text),
            Kind::Tiers => reads_back::<TiersFile>(&name, &text),
            Kind::Worked => reads_back::<WorkedFile>(&name, &text),
        }
    }
    reads_back::<FleetFile>("everything", EVERYTHING);
}

/// A file that uses most of what there is.
const EVERYTHING: &str = include_str!("../../../../tests/scenario-with-everything.toml");

#[test]
fn a_file_that_uses_everything_is_good() {
    let plan = plan(EVERYTHING);
    assert_eq!(plan.timeline.len(), Happening::all().len());
    let found: Vec<String> = fleet::run(&plan, 1, &mut |_| {}).metrics.into_keys().collect();
    let mut announced = fleet::metric_names(&plan);
    // The group comes and goes between the measured phases, so only the whole run has its CPU and latency.
    let absent = |name: &String| name.ends_with(".new") && !found.contains(name);
    assert!(announced.iter().all(|name| !absent(name) || name.matches('.').count() == 3), "{found:?}");
    announced.retain(|name| !absent(name));
    announced.sort_unstable();
    assert_eq!(found, announced);
}

/// A row of the documentation: the table (or the choice and its variant), the key, and the default.
type Row = (String, String, String);

fn row(table: &str, setting: &Setting) -> Row {
    (table.to_owned(), setting.key.to_owned(), setting.default.clone().unwrap_or_else(|| "none".to_owned()))
}

/// The settings of the variants of a choice, named by what it is a choice of.
fn variant_rows<T: Variants>(rows: &mut BTreeSet<Row>) {
    for (name, settings) in variants::<T>() {
        let table = format!("{}: {name}", T::NOUN);
        rows.extend(settings.iter().map(|setting| row(&table, setting)));
        if settings.is_empty() {
            rows.insert((table, String::new(), String::new()));
        }
    }
}

#[test]
fn every_setting_is_in_the_documentation_with_its_default() {
    let mut expected = BTreeSet::new();
    for settings in [
        settings::<File<FleetFile>>(),
        settings::<File<SheddingFile>>(),
        settings::<File<ProbesFile>>(),
        settings::<File<QuotaFile>>(),
        settings::<File<RolloutFile>>(),
        settings::<File<SpillFile>>(),
        settings::<File<SubsetFile>>(),
        settings::<File<TiersFile>>(),
        settings::<File<WorkedFile>>(),
    ] {
        expected.extend(settings.iter().map(|setting| row(&setting.table, setting)));
    }
    let of_groups: BTreeSet<String> =
        expected.iter().filter(|row| row.0 == "backends").map(|row| row.1.clone()).collect();
    variant_rows::<Arrivals>(&mut expected);
    variant_rows::<Cost>(&mut expected);
    variant_rows::<Skew>(&mut expected);
    variant_rows::<Antagonist>(&mut expected);
    variant_rows::<Conduct>(&mut expected);
    variant_rows::<Happening>(&mut expected);
    variant_rows::<ProbeRule>(&mut expected);
    variant_rows::<Shedder>(&mut expected);
    variant_rows::<Spread>(&mut expected);
    variant_rows::<Sharing>(&mut expected);
    variant_rows::<Holding>(&mut expected);
    variant_rows::<Retries>(&mut expected);
    variant_rows::<Rule>(&mut expected);
    variant_rows::<Occurrence>(&mut expected);
    variant_rows::<crate::experiment::probes::plan::Rule>(&mut expected);
    // Of a group that comes later the documentation says that it has the settings of any group.
    let added = format!("{}: add-backends", Happening::NOUN);
    expected.retain(|(table, key, _)| *table != added || !of_groups.contains(key));

    let documentation = fs::read_to_string(folder("docs/scenarios.md")).unwrap();
    let mut section = None;
    let mut rows = BTreeSet::new();
    for line in documentation.lines() {
        if let Some(heading) = line.strip_prefix("### ").or_else(|| line.strip_prefix("## ")) {
            section = section_of(heading);
        } else if let (Some(section), Some(cells)) = (&section, line.strip_prefix("| `")) {
            let cells: Vec<&str> = cells.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let own = |cell: usize| cells[cell].to_owned();
            rows.insert(match section {
                Section::Table(table) => (table.clone(), own(0), own(1)),
                // The settings of a variant that has none are an empty cell.
                Section::Choice(what) => (format!("{what}: {}", cells[0]), own(1), own(2)),
            });
        }
    }
    for row in &expected {
        assert!(rows.contains(row), "docs/scenarios.md lacks, or gives another default for, {row:?}");
    }
    for row in &rows {
        assert!(expected.contains(row), "docs/scenarios.md has a setting that does not exist: {row:?}");
    }
}

#[test]
fn every_metric_of_a_fleet_is_in_the_documentation() {
    let documentation = fs::read_to_string(folder("docs/scenarios.md")).unwrap();
    let (_, section) = documentation.split_once("## Metrics of a fleet").unwrap();
    let section = section.split("\n# ").next().unwrap();
    let rows: BTreeSet<String> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(|metric| format!("a.{}", metric.replace("GROUP", "backend")))
        .collect();
    // Metrics of keys exist only where requests have keys.
    let mut keyed = plan(MINIMAL);
    keyed.requests.keys = Some(NonZeroU32::MIN);
    assert_eq!(rows, crate::experiment::fleet::metric_names(&keyed).into_iter().collect());
}

/// What a section of the documentation lists.
enum Section {
    /// The settings of a table; empty at the root.
    Table(String),
    /// The variants of a choice.
    Choice(String),
}

/// `[[table]]` in backticks, "Top of the file" or "Choice: what".
fn section_of(heading: &str) -> Option<Section> {
    if let Some(what) = heading.strip_prefix("Choice: ") {
        return Some(Section::Choice(what.to_owned()));
    }
    if heading.starts_with("Top of the file") {
        return Some(Section::Table(String::new()));
    }
    let table = heading.split('`').nth(1)?;
    table.starts_with('[').then(|| Section::Table(table.replace(['[', ']'], "")))
}

mod probes;
mod shedding;
mod tiers;
mod zones;

mod any_text {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Cuts and swaps of a good file reach deeper than random characters do.
        #[test]
        fn no_text_makes_the_reader_panic(cut in 0..4000_usize, junk in "[\\PC\n]{0,12}", skip in 0..60_usize) {
            let start = EVERYTHING.char_indices().map(|(i, _)| i).nth(cut % EVERYTHING.chars().count()).unwrap();
            let tail: String = EVERYTHING[start..].chars().skip(skip).collect();
            let _ = Scenario::parse("changed", &format!("{}{junk}{tail}", &EVERYTHING[..start]));
        }

        /// Numbers that fit their types and no world.
        #[test]
        fn no_number_makes_the_checks_panic(place in 0..80_usize, number in prop_oneof![
            Just("0"), Just("1"), Just("4294967295"), Just("1e300"), Just("1e-300"), Just("9223372036854775807"),
        ]) {
            let digits = |c: char| c.is_ascii_digit();
            let starts: Vec<usize> = EVERYTHING
                .match_indices(digits)
                .map(|(i, _)| i)
                .filter(|i| !EVERYTHING[..*i].ends_with(|c: char| c.is_ascii_digit() || c == '.'))
                .collect();
            let start = starts[place % starts.len()];
            let end = start + EVERYTHING[start..].find(|c: char| !c.is_ascii_digit()).unwrap();
            let _ = Scenario::parse("changed", &format!("{}{number}{}", &EVERYTHING[..start], &EVERYTHING[end..]));
        }
    }
}
