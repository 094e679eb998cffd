//! The file of keys that a setting of probes names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use plimsoll::probe::InvalidKeys;
use plimsoll_config::Checker;
use plimsoll_tls_config::FilePath;

/// Two keys take less than 300 bytes; the rest is for comments.
const MAX_FILE: u64 = 64 * 1024;

/// The keys in the file that `setting` names, as `parse` reads them; `None` after a problem.
pub(super) fn read<K>(
    setting: String,
    path: &FilePath,
    folder: &Path,
    checker: &mut Checker<'_>,
    parse: impl FnOnce(&str) -> Result<K, InvalidKeys>,
) -> Option<K> {
    let file = path.within(folder);
    match text(&file).map(|text| parse(&text)) {
        Ok(Ok(keys)) => return Some(keys),
        Ok(Err(invalid)) => {
            let text = invalid.to_string();
            let usual = "write a line of an id from 1 to 255 and a secret, such as `openssl rand -hex 32` prints";
            let (reason, help) = text.split_once("; help: ").unwrap_or((&text, usual));
            checker.report(setting, format!("{}: {reason}", file.display()), help);
        }
        Err(error) => {
            let help = "name a readable file; a relative path begins at the folder of the configuration";
            checker.report(setting, format!("{} cannot be read: {error}", file.display()), help);
        }
    }
    None
}

fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One more, which shows that there is more.
    File::open(file)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}
