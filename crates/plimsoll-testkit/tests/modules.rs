//! Dependencies between modules point downward: no cycle is wider than one folder, and the two large
//! crates have a table of the folders that each folder may import.
//!
//! A node is a file. An edge is a path in its code (tests left out) to an item of another file of the
//! crate. A re-export is followed to the file that defines the item, so a convenient name at the root
//! of a crate makes no dependency on the root.
//!
//! Where this is weak: names in a macro's body are found only when they begin with `crate`, and names
//! that a glob import brings in are not followed.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, ItemMod, UseTree};

use self::source::{rust_files, workspace_root};

/// Folders that are a part of a crate rather than one subject. Each file and folder in them counts for itself.
const PARTS: &[(&str, &str)] = &[("plimsoll", "client")];
/// Small crates of one subject, whose root defines types that its files share: `src` is the one folder.
const ONE_FOLDER: &[&str] = &["plimsoll-config", "plimsoll-http1", "plimsoll-stream", "plimsoll-system"];

/// Folders and files of `plimsoll`, and those that each may import. Importers come first.
#[rustfmt::skip]
const LIBRARY: &[(&str, &[&str])] = &[
    ("metrics", &["client::cluster", "client::failed_attempt", "server"]),
    ("test", &["client::cluster", "server"]),
    ("client", &[
        "body", "client::backend", "client::batch", "client::body", "client::builder", "client::cluster", "client::config",
        "client::error", "client::failed_attempt", "client::informational", "client::load_reports",
        "client::localities", "client::pool", "client::refused", "client::request_body",
        "client::request_options", "client::send", "client::service", "client::trace",
        "client::upgraded",
    ]),
    ("client::answer", &["client::attempt_end", "client::error"]),
    ("client::builder", &[
        "address", "client::batch", "client::cluster", "client::config", "client::localities", "client::trace",
        "discover", "tls",
    ]),
    ("client::service", &[
        "address", "client::body", "client::error", "client::pool", "client::request_body",
        "client::request_options", "client::send",
    ]),
    ("client::send", &[
        "address", "client::attempt", "client::attempt_end", "client::backend", "client::batch",
        "client::body", "client::classify", "client::cluster", "client::config", "client::error",
        "client::failed_attempt", "client::form", "client::http1", "client::http2_body",
        "client::hyper_error", "client::informational", "client::inherit", "client::outgoing",
        "client::pool", "client::preemption", "client::refused", "client::replay",
        "client::request_body", "client::request_options", "client::timer", "client::trace",
        "client::upgraded",
    ]),
    ("client::body", &[
        "address", "client::attempt", "client::attempt_end", "client::classify", "client::error",
        "client::http1", "client::http2_body", "client::outgoing", "client::preemption",
    ]),
    ("client::classify", &["client::attempt_end"]),
    ("client::http2_body", &["address", "client::error"]),
    ("client::inherit", &["server"]),
    ("client::pool", &[
        "client::attempt", "client::backend", "client::cluster", "client::config",
        "client::connect", "client::error", "client::form", "client::http1", "client::hyper_error",
        "client::outgoing", "client::replay", "client::request_body", "client::stream_id", "tls",
    ]),
    ("client::upgraded", &["client::attempt", "client::error", "client::http1", "client::preemption"]),
    ("client::attempt", &[
        "client::attempt_end", "client::batch", "client::cluster", "client::http1",
        "client::preemption", "client::stream_id", "client::trace",
    ]),
    ("client::cluster", &[
        "address", "client::attempt_end", "client::backend", "client::batch", "client::check",
        "client::config", "client::error", "client::failed_attempt", "client::load_reports",
        "client::localities", "client::operations", "client::preemption", "client::trace", "clock", "discover", "probe",
    ]),
    ("client::check", &[
        "client::backend", "client::config", "client::connect", "client::error", "client::form",
        "client::load_reports",
    ]),
    ("client::connect", &["address", "client::backend", "client::config", "client::error", "tls"]),
    ("client::form", &["client::backend"]),
    ("client::http1", &[
        "client::backend", "client::error", "client::informational", "client::outgoing",
        "client::preemption", "client::replay", "client::request_body", "client::timer",
    ]),
    ("client::backend", &["address", "discover"]),
    ("client::operations", &[]),
    ("client::replay", &["client::outgoing", "client::request_body", "client::request_options"]),
    ("client::outgoing", &["client::preemption", "client::request_body"]),
    ("client::preemption", &["clock"]),
    ("client::stream_id", &[]),
    ("client::request_options", &[
        "client::batch", "client::config", "client::informational", "client::trace",
    ]),
    ("client::batch", &["clock"]),
    ("client::config", &["client::load_reports", "client::localities", "probe", "tls"]),
    ("client::load_reports", &[]),
    ("client::informational", &[]),
    ("client::localities", &["discover"]),
    ("client::timer", &[]),
    ("client::trace", &["address"]),
    ("client::failed_attempt", &["address", "client::error", "client::refused"]),
    ("client::error", &[
        "address", "client::attempt_end", "client::hyper_error", "client::refused",
        "client::request_body",
    ]),
    ("client::hyper_error", &[]),
    ("client::refused", &["client::attempt_end"]),
    ("client::attempt_end", &[]),
    ("client::request_body", &[]),
    ("discover", &["address"]),
    ("server", &["clock", "first", "probe", "tls"]),
    ("address", &[]),
    ("body", &[]),
    ("clock", &[]),
    ("probe", &[]),
    ("tls", &[]),
    ("first", &[]),
    ("tls_off", &[]),
];

/// The same for `plimsoll-proxy`.
#[rustfmt::skip]
const PROXY: &[(&str, &[&str])] = &[
    ("proxy", &[
        "access_log", "batch", "classify", "config", "degrade", "explain", "fleet", "inbound",
        "limits", "listener", "mirror", "neighbours", "phase", "pressure", "probes", "sockets", "split",
        "state", "trace", "worker",
    ]),
    ("probes", &["inbound", "phase"]),
    ("fleet", &["config"]),
    ("neighbours", &[]),
    ("state", &[]),
    ("worker", &[
        "access_log", "batch", "classify", "config", "connection", "degrade", "explain", "fixed",
        "inbound", "limits", "listener", "mirror", "phase", "request_body", "route", "sockets", "split",
        "trace",
    ]),
    ("batch", &["request_body"]),
    ("listener", &[
        "config", "connection", "counts", "http1", "http2", "limits", "peer", "phase", "pressure",
        "request", "sockets",
    ]),
    ("http1", &["connection", "date", "reason", "request", "request_body"]),
    ("http2", &["connection", "limits", "phase", "request", "request_body"]),
    ("request", &[
        "access_log", "connection", "counts", "date", "degrade", "explain", "limits",
        "phase", "reason", "request_body", "route",
    ]),
    ("connection", &[
        "access_log", "counts", "degrade", "explain", "forwarded", "limits", "peer", "phase",
        "pressure", "reason", "route", "split", "trace",
    ]),
    ("trace", &["access_log", "config"]),
    ("access_log", &["config", "explain", "peer", "printable"]),
    ("explain", &["classify", "config"]),
    ("phase", &[]),
    ("pressure", &["config", "inbound", "sockets"]),
    ("printable", &[]),
    ("route", &[
        "classify", "config", "degrade", "fixed", "forwarded", "inbound", "mirror", "peer", "reason",
        "request_body", "split",
    ]),
    ("mirror", &["config", "counts"]),
    ("split", &["config"]),
    ("classify", &["config", "inbound"]),
    ("degrade", &["config", "counts", "date", "fixed"]),
    ("date", &[]),
    ("fixed", &["config", "reason"]),
    ("reason", &["counts"]),
    ("counts", &[]),
    ("inbound", &["config"]),
    ("request_body", &["limits"]),
    ("limits", &["config", "forwarded"]),
    ("forwarded", &["config", "peer"]),
    ("sockets", &["config"]),
    ("config", &[]),
    ("peer", &[]),
];

#[test]
fn no_cycle_of_imports_is_wider_than_one_folder() {
    let mut faults = String::new();
    for name in crates() {
        let modules = Modules::read(&name);
        for cycle in modules.cycles() {
            let rooms: BTreeSet<String> = cycle.iter().map(|file| modules.room(file)).collect();
            if rooms.len() > 1 && !ONE_FOLDER.contains(&name.as_str()) {
                let _ = writeln!(faults, "{name}: a cycle over {} files in {rooms:?}:", cycle.len());
                for (from, to) in modules.edges_within(&cycle) {
                    let _ = writeln!(faults, "    {} -> {}", shown(from), shown(to));
                }
            }
        }
    }
    assert!(faults.is_empty(), "imports must point downward: move the shared type below both files\n{faults}");
}

/// The order is the proof that nothing points upward: each row may name rows below it only.
#[test]
fn folders_of_the_large_crates_import_what_the_table_allows() {
    for (name, table) in [("plimsoll", LIBRARY), ("plimsoll-proxy", PROXY)] {
        let found = Modules::read(name).table();
        let listed: Vec<(String, Vec<String>)> =
            table.iter().map(|(room, may)| (room.to_string(), may.iter().map(ToString::to_string).collect())).collect();
        for (row, (room, may)) in listed.iter().enumerate() {
            let above = may.iter().find(|other| !listed[row + 1..].iter().any(|(below, _)| below == *other));
            assert!(above.is_none(), "{name}: {room} may import rows below it only, not {above:?}");
        }
        let sorted = |table: &[(String, Vec<String>)]| table.iter().cloned().collect::<BTreeMap<_, _>>();
        let mut text = String::new();
        for (room, may) in &found {
            let _ = writeln!(text, "    ({room:?}, &{may:?}),");
        }
        assert!(sorted(&found) == sorted(&listed), "{name}: the table and the imports differ. The imports:\n{text}");
    }
}

/// Path of a module from the root of its crate; empty for the root.
type Module = Vec<String>;

struct Modules {
    name: String,
    files: BTreeMap<Module, Source>,
    edges: BTreeMap<Module, BTreeSet<Module>>,
}

/// The parts of a file that decide where a name leads.
#[derive(Default)]
struct Source {
    defined: BTreeSet<String>,
    /// Name in this file, and the path that it stands for; `None` for an item of another crate.
    imported: Vec<(String, Option<Vec<String>>)>,
    globs: Vec<Vec<String>>,
}

impl Modules {
    fn read(name: &str) -> Self {
        let folder = workspace_root().join("crates").join(name).join("src");
        let parsed: BTreeMap<Module, File> = rust_files(&folder)
            .into_iter()
            .map(|path| {
                let text = fs::read_to_string(&path).expect("source is readable");
                let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                (module_of(path.strip_prefix(&folder).expect("it is in the folder")), file)
            })
            .collect();
        let tests = parsed.iter().flat_map(|(module, file)| test_modules(module, file)).collect::<Vec<_>>();
        let is_test = |module: &Module| tests.iter().any(|test| module.starts_with(test));
        let parsed: BTreeMap<Module, File> = parsed.into_iter().filter(|(module, _)| !is_test(module)).collect();
        let known: BTreeSet<Module> = parsed.keys().cloned().collect();
        let mut modules = Self { name: name.to_owned(), files: BTreeMap::new(), edges: BTreeMap::new() };
        let mut paths = BTreeMap::new();
        for (module, file) in &parsed {
            let mut reader = Reader {
                known: &known,
                module: module.clone(),
                depth: 0,
                source: Source::default(),
                paths: Vec::new(),
            };
            reader.visit_file(file);
            modules.files.insert(module.clone(), reader.source);
            paths.insert(module.clone(), reader.paths);
        }
        for (module, paths) in paths {
            let targets = paths.iter().filter_map(|path| modules.file_of(path, 0)).filter(|to| *to != module);
            let targets = targets.collect();
            modules.edges.insert(module, targets);
        }
        modules
    }

    /// The file that defines the item at `path`.
    fn file_of(&self, path: &[String], depth: usize) -> Option<Module> {
        let known = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
        let (module, rest) = (&path[..known], &path[known..]);
        let source = &self.files[module];
        // A cycle of re-exports does not compile; the depth guards against a misread one.
        if let Some(name) = rest.first().filter(|name| depth < 8 && !source.defined.contains(*name)) {
            if let Some((_, target)) = source.imported.iter().find(|(imported, _)| imported == name) {
                return self.file_of(&[target.as_deref()?, &rest[1..]].concat(), depth + 1);
            }
            let of_glob =
                |glob: &&Vec<String>| self.files.get(*glob).is_some_and(|source| source.defined.contains(name));
            if let Some(glob) = source.globs.iter().find(of_glob) {
                return Some(glob.clone());
            }
        }
        Some(module.to_vec())
    }

    /// Groups of files that import each other, each with more than one file.
    fn cycles(&self) -> Vec<BTreeSet<Module>> {
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            self.files.keys().map(|module| (module, self.reached_from(module))).collect();
        let mut cycles = BTreeSet::new();
        for (module, reach) in &reached {
            let mut cycle: BTreeSet<Module> =
                reach.iter().filter(|other| reached[other].contains(*module)).cloned().collect();
            cycle.insert((*module).clone());
            if cycle.len() > 1 {
                cycles.insert(cycle);
            }
        }
        cycles.into_iter().collect()
    }

    fn reached_from(&self, module: &Module) -> BTreeSet<Module> {
        let (mut seen, mut pending) = (BTreeSet::new(), vec![module]);
        while let Some(module) = pending.pop() {
            pending.extend(self.edges[module].iter().filter(|to| seen.insert((*to).clone())));
        }
        seen
    }

    /// Each folder and the folders that it imports, importers first. The root, which only wires, is left out.
    fn table(&self) -> Vec<(String, Vec<String>)> {
        let mut left: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, targets) in self.edges.iter().filter(|(from, _)| !from.is_empty()) {
            let from = self.room(from);
            let rooms = targets.iter().map(|to| self.room(to)).filter(|to| *to != from && !to.is_empty());
            left.entry(from.clone()).or_default().extend(rooms);
        }
        let mut table = Vec::new();
        while !left.is_empty() {
            let is_imported = |room: &String| left.values().any(|rooms| rooms.contains(room));
            let top = left.keys().find(|room| !is_imported(room)).or_else(|| left.keys().next());
            let top = top.expect("the table is not done").clone();
            let rooms = left.remove(&top).expect("the row is there");
            table.push((top, rooms.into_iter().collect()));
        }
        table
    }

    fn edges_within<'c>(&'c self, cycle: &'c BTreeSet<Module>) -> impl Iterator<Item = (&'c Module, &'c Module)> {
        let within = |from| self.edges[from].iter().filter(|to| cycle.contains(*to)).map(move |to| (from, to));
        cycle.iter().flat_map(within).filter(|(from, to)| self.room(from) != self.room(to))
    }

    /// The file or folder that stands for one subject: the first name of the path, or two names in a part of a crate.
    fn room(&self, module: &Module) -> String {
        let is_part = module.first().is_some_and(|first| PARTS.contains(&(&self.name, first)));
        module.iter().take(if is_part { 2 } else { 1 }).cloned().collect::<Vec<_>>().join("::")
    }
}

/// Collects the paths in one file, absolute from the root of the crate.
struct Reader<'k> {
    known: &'k BTreeSet<Module>,
    /// Where the visited code is: the file's module, and modules within it.
    module: Module,
    /// Number of modules within the file that enclose the visited code.
    depth: usize,
    source: Source,
    paths: Vec<Vec<String>>,
}

impl Reader<'_> {
    /// `None` for a path into another crate, or to a name that the code itself brings into scope.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut base = self.module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            _ => {
                base.push(path[0].clone());
                return self.known.contains(&base).then(|| [&base[..], &path[1..]].concat());
            }
        }
        Some([&base[..], rest].concat())
    }

    fn add(&mut self, path: &[String]) {
        self.paths.extend(self.absolute(path));
    }

    fn import(&mut self, tree: &UseTree, before: &[String]) {
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &[before, &[path.ident.to_string()]].concat()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
            UseTree::Name(name) if name.ident == "self" => {
                self.import_as(before.last().cloned().unwrap_or_default(), before);
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.import_as(name.clone(), &[before, &[name]].concat());
            }
            UseTree::Rename(renamed) => {
                self.import_as(renamed.rename.to_string(), &[before, &[renamed.ident.to_string()]].concat());
            }
            UseTree::Glob(_) => {
                self.add(before);
                if let (0, Some(path)) = (self.depth, self.absolute(before)) {
                    self.source.globs.push(path);
                }
            }
        }
    }

    fn import_as(&mut self, name: String, path: &[String]) {
        self.add(path);
        if self.depth == 0 {
            self.source.imported.push((name, self.absolute(path)));
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_for_tests) {
            return;
        }
        if let (0, Some(name)) = (self.depth, name_of(item)) {
            self.source.defined.insert(name);
        }
        if let Item::Use(used) = item {
            return self.import(&used.tree, &[]);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.content.is_none() {
            return;
        }
        self.module.push(module.ident.to_string());
        self.depth += 1;
        visit::visit_item_mod(self, module);
        self.module.pop();
        self.depth -= 1;
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let for_tests = matches!(item, syn::ImplItem::Fn(function) if function.attrs.iter().any(is_for_tests));
        if !for_tests {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_none() && names.len() > 1 {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let text = called.tokens.to_string().replace(' ', "");
        for (at, _) in text.match_indices("crate::") {
            let end = text[at..]
                .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                .map_or(text.len(), |end| at + end);
            self.add(&text[at..end].split("::").map(str::to_owned).collect::<Vec<_>>());
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn is_for_tests(attribute: &Attribute) -> bool {
    let is_cfg = attribute.path().is_ident("cfg");
    is_cfg && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
}

/// Modules that a file declares for tests only.
fn test_modules(module: &Module, file: &File) -> Vec<Module> {
    let declared = file.items.iter().filter_map(|item| match item {
        Item::Mod(child) if child.attrs.iter().any(is_for_tests) => Some(child.ident.to_string()),
        _ => None,
    });
    declared.map(|child| [&module[..], &[child]].concat()).collect()
}

fn module_of(path: &Path) -> Module {
    let mut names: Module = path.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let is_root = names.len() == 1 && matches!(names[0].as_str(), "lib" | "main");
    if is_root || names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("::") }
}

fn crates() -> Vec<String> {
    let entries = fs::read_dir(workspace_root().join("crates")).expect("the folder of crates");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("a readable entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}
