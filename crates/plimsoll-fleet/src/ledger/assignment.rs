//! The value of an assignment: a JSON list of addresses.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_etcd::Record;

use crate::layout::OF;

/// An assignment as it is written.
pub(super) fn write(backends: &BTreeSet<String>) -> Vec<u8> {
    serde_json::to_vec(backends).expect("texts are JSON")
}

/// An assignment; `None` if it is none.
pub(super) fn read(value: &[u8]) -> Option<BTreeSet<String>> {
    serde_json::from_slice(value).ok()
}

/// All assignments of a ledger, by client. One that is none has no backends, so it is written anew.
pub(super) fn all<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    folder: &str,
) -> BTreeMap<String, BTreeSet<String>> {
    let prefix = format!("{folder}{OF}");
    let one = |record: &Record| {
        let client = record.key.strip_prefix(&prefix)?.to_owned();
        Some((client, read(&record.value).unwrap_or_default()))
    };
    records.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignment_is_read_as_it_was_written() {
        let backends: BTreeSet<String> = ["10.0.0.2:80", "10.0.0.1:80"].map(str::to_owned).into();
        assert_eq!(write(&backends), br#"["10.0.0.1:80","10.0.0.2:80"]"#);
        assert_eq!(read(&write(&backends)), Some(backends));
        assert_eq!(read(b"10.0.0.1:80"), None);
    }

    #[test]
    fn wrong_assignment_has_no_backends() {
        let record = |key: &str, value: &str| Record {
            key: key.to_owned(),
            value: value.into(),
            create_revision: 1,
            mod_revision: 1,
            lease: 0,
        };
        let records = [record("/p/of/a", r#"["x"]"#), record("/p/of/b", "{}"), record("/p/leader", "a")];
        let all = all(&records, "/p/");
        assert_eq!((all["a"].len(), all["b"].len(), all.len()), (1, 0, 2));
    }
}
