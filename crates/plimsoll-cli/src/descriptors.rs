//! Decides how many sockets this process may hold: as many as the system lets it have.
//!
//! The usual soft limit of 1,024 file descriptors exists for programs that use `select(2)`, which
//! none of this does. A proxy or a load generator that meets it fails in a way that looks like a
//! fault of the backends, so the soft limit is raised to the hard one at start, as Go does.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open file descriptors to the hard limit. Failing to is no reason to stop.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}
