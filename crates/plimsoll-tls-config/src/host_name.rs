//! Names of hosts.

/// Whether `name` can be a host name: labels of letters, digits, `-` and `_`, 253 characters at
/// most.
#[must_use]
pub fn is_host_name(name: &str) -> bool {
    let label_is_good = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.len() <= 253 && name.split('.').all(label_is_good)
}
