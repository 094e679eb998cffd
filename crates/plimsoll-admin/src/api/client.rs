//! The client of a request: whether it may change the process or its backends.

use std::net::SocketAddr;

use axum::extract::Extension;
use axum::http::StatusCode;

use super::answer::Problem;
use crate::caller::{Caller, Stranger};

/// The client; `None` where the API is not served by this crate.
pub type Client = Option<Extension<Caller>>;

/// The address of a client that may do what a signal or a changed file can. `deed` begins the error.
///
/// # Errors
/// The client is on another machine, or is of another user than this process and not root.
pub async fn check(client: Client, deed: &str) -> Result<Option<SocketAddr>, Problem> {
    let address = address(&client);
    let checked = match client {
        None => Err(Stranger::Remote),
        // Reads a file that is long where there are many connections.
        Some(Extension(caller)) => {
            tokio::task::spawn_blocking(move || caller.check()).await.unwrap_or(Err(Stranger::OtherUser))
        }
    };
    let (error, help) = match checked {
        Ok(()) => return Ok(address),
        Err(Stranger::Remote) => (
            format!("{deed} from its own machine only"),
            "run the command on the machine of the proxy, or in its container",
        ),
        Err(Stranger::OtherUser) => (
            format!("{deed} from its own user and from root only"),
            "run the command as the user of the proxy, or as root",
        ),
    };
    Err(Problem::new(StatusCode::FORBIDDEN, error, help))
}

/// Its address, for the log.
pub(super) fn address(client: &Client) -> Option<SocketAddr> {
    client.as_ref().map(|Extension(caller)| caller.address())
}
