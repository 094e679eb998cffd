//! What a process that holds many connections asks of the system before it begins.
//!
//! The usual soft limit of 1,024 file descriptors exists for programs that use `select(2)`, which
//! none of this does. A proxy or a load generator that meets it fails in a way that looks like a
//! fault of the backends, so the soft limit is raised to the hard one at start, as Go does.
//!
//! The allocator asks for huge pages. What touches one first waits until 2 MiB of memory are found and zeroed: 4 to 5 ms on
//! a virtual machine (`bench/reconnect`), in which nobody on the thread is served. Small ones take microseconds each.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises limits and chooses small pages. Failing to is no reason to stop.
pub(crate) fn prepare() {
    raise_limit();
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "transparent huge pages not switched off");
    }
}

/// Raises the soft limit of open file descriptors to the hard limit.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "limit of open files not raised");
    }
}
