//! The table of machines states the lengths of their examples, in the documentation and the README.
//! A user of one machine needs no library of the core's.

use std::fs;
use std::path::Path;

/// The source of each machine in the table.
const SOURCES: &[(&str, &str)] = &[
    ("throttle::Throttle", "throttle/mod.rs"),
    ("retry::Budget", "retry/budget.rs"),
    ("admit::Gate", "admit/gate.rs"),
    ("admit::Queue", "admit/queue.rs"),
    ("request_limit::RequestLimits", "request_limit.rs"),
    ("quota::Holder", "quota/holder.rs"),
    ("pick::WeightedPicker", "pick/alone.rs"),
    ("pick::ReportPicker", "pick/alone.rs"),
    ("pick::less_loaded_of_two", "pick/alone.rs"),
    ("Balancer", "balancer/mod.rs"),
    ("pick::HashKey", "pick/hash/key.rs"),
    ("subset::Subset", "subset/members.rs"),
    ("split::Split", "split.rs"),
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("the file is there")
}

/// The rows of the table: problem, machine, lines. Links lead nowhere.
fn rows(text: &str) -> Vec<(String, String, usize)> {
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_start_matches("//! ").trim_matches('|').split('|').map(str::trim).collect();
        let [problem, machine, lines] = cells[..] else { return None };
        let machine = machine.strip_prefix("[`")?.split_once("`]")?.0;
        Some((problem.to_owned(), machine.to_owned(), lines.parse().ok()?))
    });
    rows.collect()
}

/// Lines of the first example of an item, without imports and hidden lines.
fn lines_of_example(machine: &str) -> usize {
    let (_, source) = SOURCES.iter().find(|(name, _)| *name == machine).expect("it has a source here");
    let text = read(&format!("src/{source}"));
    let item = machine.rsplit("::").next().expect("not empty");
    let is_item = |line: &&str| {
        let rest = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub fn "));
        rest.is_some_and(|rest| {
            rest.strip_prefix(item)
                .is_some_and(|end| !end.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        })
    };
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(is_item).expect("the item is there");
    let docs = lines[..at].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
    let mut docs: Vec<&str> = docs.filter_map(|line| line.strip_prefix("///")).map(str::trim).collect();
    docs.reverse();
    let example = docs.iter().skip_while(|line| **line != "```").skip(1).take_while(|line| **line != "```");
    let is_code = |line: &&&str| !line.is_empty() && !line.starts_with("# ") && !line.starts_with("use ");
    example.filter(is_code).count()
}

#[test]
fn table_of_machines_counts_the_lines_of_examples() {
    let table = rows(&read("src/lib.rs"));
    assert_eq!(table.len(), SOURCES.len());
    let counted: Vec<_> = table
        .iter()
        .map(|(problem, machine, _)| (problem.clone(), machine.clone(), lines_of_example(machine)))
        .collect();
    assert_eq!(table, counted);
    assert_eq!(rows(&read("README.md")), table);
    assert!(table.iter().all(|(_, _, lines)| (5..=30).contains(lines)), "short, and not empty");
}

/// Sources of the core, without their comments and tests.
fn code(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).expect("within").display().to_string();
        if path.is_dir() {
            code(&path, found);
        } else if !name.contains("tests") && !name.ends_with("properties.rs") {
            let text = fs::read_to_string(&path).expect("text");
            let text = text.split("#[cfg(test)]\nmod tests {").next().expect("not empty");
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.push((name, lines.collect::<Vec<_>>().join("\n")));
        }
    }
}

#[test]
fn signatures_name_no_type_of_a_library() {
    let mut sources = Vec::new();
    code(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    assert!(sources.len() > 100, "{}", sources.len());
    let named: Vec<&str> =
        sources.iter().filter(|(_, text)| text.contains("rand_")).map(|(name, _)| name.as_str()).collect();
    // The blanket implementation, behind its feature, and a private generator.
    assert_eq!(named.len(), 2, "{named:?}");
    assert!(["src/random.rs", "src/subset/seeds.rs"].iter().all(|name| named.contains(name)), "{named:?}");
    for (name, text) in &sources {
        for line in text.lines().map(str::trim_start).filter(|line| line.starts_with("pub ")) {
            let is_of_library =
                ["HashTable", "XxHash64", "hashbrown", "twox_hash", "libm"].iter().any(|it| line.contains(it));
            assert!(!is_of_library, "{name}: {line}");
        }
    }
}
