"""A copy of the sources in which a run of the tests chooses the mistake that it makes."""

import os
import pathlib
import shutil
import subprocess

CORE = pathlib.Path("crates/plimsoll-core")
CHOICE, REACHED = "PLIMSOLL_MISTAKE", "PLIMSOLL_REACHED"

# The intrinsic of the switch needs it: a constant function may ask, and is told no where a constant is computed.
BUILD = {"RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": "--cap-lints=allow"}
# The tests run once for each mistake, so they are worth some optimization; assertions stay on.
TESTS = {**BUILD, "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_PROFILE_DEV_OPT_LEVEL": "1"}

HEAD = "#![no_std]\n#![feature(core_intrinsics, const_eval_select)]"
SWITCH = """
extern crate std;

pub(crate) const fn mistake(number: usize) -> bool {
    core::intrinsics::const_eval_select((number,), never, chosen)
}

const fn never(_: usize) -> bool {
    false
}

fn chosen(number: usize) -> bool {
    use std::{env, fs::File, io::Write, sync::OnceLock};
    use core::sync::atomic::{AtomicBool, Ordering};
    static CHOSEN: OnceLock<Option<usize>> = OnceLock::new();
    static REACHED: OnceLock<Option<File>> = OnceLock::new();
    static SEEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    let open = |path| File::options().append(true).create(true).open(path).unwrap();
    if let Some(mut file) = REACHED.get_or_init(|| env::var("REACHED").ok().map(open)).as_ref() {
        if !SEEN[number].swap(true, Ordering::Relaxed) {
            file.write_all(std::format!("{number}\\n").as_bytes()).unwrap();
        }
    }
    let read = || env::var("CHOICE").ok().and_then(|number| number.parse().ok());
    *CHOSEN.get_or_init(read) == Some(number)
}
"""


def copy(root, tree, texts, count):
    """Copies the tracked files to `tree`; `texts` are those with mistakes in them, by path, and `count` is that of the mistakes."""
    lib = str(CORE / "src/lib.rs")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True)
    kept = set()
    for name in listed.stdout.splitlines():
        source, target = root / name, tree / name
        if not source.is_file():
            continue
        data = texts[name].encode() if name in texts else source.read_bytes()
        if name == lib:
            text = data.decode().replace("#![no_std]", HEAD).replace("#![forbid(unsafe_code)]", "")
            switch = SWITCH.replace("COUNT", str(count)).replace('"CHOICE"', f'"{CHOICE}"').replace('"REACHED"', f'"{REACHED}"')
            data = (text + switch).encode()
        kept.add(target)
        # An unchanged file keeps its time, so that cargo does not build it again.
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(source, target)
    for old in (file for file in tree.rglob("*") if file.is_file()):
        if old not in kept:
            old.unlink()


def environment(target, profile, number=None):
    chosen = {} if number is None else {CHOICE: str(number)}
    return {**os.environ, **profile, **chosen, "CARGO_TARGET_DIR": str(target)}
