//! One question to an admin API.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::time::timeout;

use crate::admin::fetch::fetch;

/// A proxy that is alive answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The status and the JSON that the API at `admin` has for `path`.
pub(super) fn get(admin: SocketAddr, path: &str) -> anyhow::Result<(u16, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let asked = runtime.block_on(async { timeout(PATIENCE, fetch(admin, path)).await });
    let (status, body) = match asked {
        Ok(answer) => answer.with_context(|| {
            format!("cannot reach the admin API at {admin}\n  help: is the proxy running, and is this the address in its [admin]? see --admin")
        })?,
        Err(_) => bail!("no answer from the admin API at {admin} within {PATIENCE:?}"),
    };
    let json = serde_json::from_slice(&body)
        .with_context(|| format!("the server at {admin} is not the admin API of a plimsoll proxy"))?;
    Ok((status, json))
}

/// As it stands in a path or a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
