//! Help where a table is expected and something else is written: `tls = true`, `retry = "off"`.

use toml::de::DeValue;

use crate::table::Table;
use crate::table::keys::{Form, Key, keys};
use crate::table::read::OFF;

/// Settings listed as examples; more would hide the point.
const LISTED: usize = 5;

/// The header of the table at `path`: `[clusters.web.tls]`, or `[[listeners]]` for one of a list.
pub(crate) fn header(path: &str) -> String {
    let mut name = String::new();
    let mut parts = path.split('[');
    name.push_str(parts.next().unwrap_or_default());
    for part in parts {
        name.push_str(part.split_once(']').map_or("", |(_, rest)| rest));
    }
    if path.ends_with(']') { format!("[[{name}]]") } else { format!("[{name}]") }
}

/// Help where `value` stands at `path` in place of `table`; `is_optional` if it may be left out.
pub(crate) fn help<T: Table>(path: &str, value: &DeValue<'_>, table: &mut T, is_optional: bool) -> String {
    let header = header(path);
    let keys = keys(table);
    let required: Vec<&str> = keys.iter().filter(|key| key.form == Form::Required).map(|key| key.name).collect();
    let is_off = match value {
        DeValue::Boolean(value) => !value,
        DeValue::String(text) => text == OFF,
        _ => false,
    };
    if is_off && is_optional {
        return format!("remove it: it is off without the table {header}");
    }
    if is_off && !T::OFF.is_empty() {
        return format!("write {} below {header}", T::OFF);
    }
    if !required.is_empty() {
        return format!("write a table, {header}, with {}", required.join(" and "));
    }
    if !T::NEEDS.is_empty() {
        return format!("write a table, {header}, with {}", T::NEEDS);
    }
    if matches!(value, DeValue::Boolean(true)) {
        return format!("write {header}: the empty table is enough");
    }
    format!("write a table, {header}, with settings such as {}", examples(&keys))
}

fn examples(keys: &[Key]) -> String {
    let names: Vec<&str> = keys.iter().take(LISTED).map(|key| key.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_a_path_has_no_index() {
        assert_eq!(header("clusters.web.tls"), "[clusters.web.tls]");
        assert_eq!(header("listeners[0].tls"), "[listeners.tls]");
        assert_eq!(header("listeners[12]"), "[[listeners]]");
    }
}
