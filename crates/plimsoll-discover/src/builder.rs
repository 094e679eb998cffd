//! The sources of this crate as lines of a cluster's builder.

use std::path::PathBuf;

use plimsoll::client::ClusterBuilder;

use crate::dns::{Dns, Srv};
use crate::eds::Eds;
use crate::file::File;
use crate::kubernetes::EndpointSlices;

/// Adds the sources of this crate to a [`ClusterBuilder`].
///
/// A cluster has one source. An invalid name is an error of `spawn` and `build`, with its place.
///
/// ```no_run
/// use std::time::Duration;
///
/// use http::Request;
/// use plimsoll::Body;
/// use plimsoll::client::{Client, Cluster};
/// use plimsoll_discover::Sources as _;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::builder("search").dns("search:8080").timeout(Duration::from_secs(2)).spawn()?;
/// let client = Client::new(&cluster);
/// let response = client.send(Request::get("/?q=plimsoll").body(Body::empty())?).await?;
/// # drop(response);
/// # Ok(())
/// # }
/// ```
///
/// A source with further settings goes into [`ClusterBuilder::source`], such as
/// `.source(Dns::new("search:8080")?.at(server))`.
pub trait Sources {
    /// Takes the addresses of a DNS name with a port, as they change. See [`Dns`].
    #[must_use]
    fn dns(self, name: &str) -> Self;

    /// Takes the targets of the SRV records of a DNS name, as they change. See [`Srv`].
    #[must_use]
    fn srv(self, name: &str) -> Self;

    /// Takes the list in a file, as it changes. See [`File`].
    #[must_use]
    fn file(self, path: impl Into<PathBuf>) -> Self;

    /// Takes the pods of a Kubernetes service in the namespace of this pod. See [`EndpointSlices`].
    #[must_use]
    fn kubernetes(self, service: &str) -> Self;

    /// Takes the endpoints of a service by an xDS server. See [`Eds`].
    #[must_use]
    fn eds(self, server: &str, service: &str) -> Self;
}

impl Sources for ClusterBuilder {
    fn dns(self, name: &str) -> Self {
        self.try_source(&place("dns", name), Dns::new(name))
    }

    fn srv(self, name: &str) -> Self {
        self.try_source(&place("srv", name), Srv::new(name))
    }

    fn file(self, path: impl Into<PathBuf>) -> Self {
        self.source(File::new(path))
    }

    fn kubernetes(self, service: &str) -> Self {
        self.try_source(&place("kubernetes", service), EndpointSlices::new(service))
    }

    fn eds(self, server: &str, service: &str) -> Self {
        self.try_source(&place("eds", &format!("{server}, {service}")), Eds::new(server, service))
    }
}

/// A line of the builder, for errors.
fn place(method: &str, arguments: &str) -> String {
    format!("{method}({arguments})")
}

#[cfg(test)]
mod tests {
    use plimsoll::client::{BuildError, Cluster};

    use super::*;

    fn error(builder: ClusterBuilder) -> String {
        builder.build().expect_err("it is invalid").to_string()
    }

    #[tokio::test]
    async fn invalid_source_is_an_error_that_names_its_line() {
        let search = || Cluster::builder("search");
        for (builder, text) in [
            (search().dns("search"), "cluster `search`, dns(search): `search` is no host name"),
            (search().srv("_http._tcp.search:80"), "cluster `search`, srv(_http._tcp.search:80): "),
            (search().kubernetes("Not A Name"), "cluster `search`, kubernetes(Not A Name): "),
            (search().eds("no port", "search"), "cluster `search`, eds(no port, search): "),
        ] {
            let error = error(builder);
            assert!(error.starts_with(text) && error.contains("\nhelp: correct "), "{error}");
        }
        let two = error(search().dns("search:80").file("/etc/search.json"));
        assert_eq!(two.lines().next(), Some("cluster `search`: two sources, dns search:80 and file /etc/search.json"));
    }

    #[test]
    fn source_outside_of_a_runtime_is_an_error() {
        let built = Cluster::builder("search").dns("search:80").build();
        assert!(matches!(built, Err(BuildError::NoRuntime { .. })), "{built:?}");
    }

    #[tokio::test]
    async fn address_by_dns_is_a_backend_when_the_cluster_is_built() {
        let cluster = Cluster::builder("search").dns("127.0.0.1:80").spawn().expect("it is valid");
        cluster.until_listed().await;
        assert_eq!(cluster.known(), 1);
        assert_eq!((cluster.discovery().kind, &*cluster.discovery().source), ("dns", "127.0.0.1:80"));
    }
}
