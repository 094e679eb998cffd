//! A Kubernetes service as a source of backends, as the file writes it.
//!
//! A pod needs the name of the service only: the kubelet gives it the address of the API server, a
//! token and the authority. `server` is for `kubectl proxy`, and for proxies outside of the cluster.

use std::fmt;
use std::path::{Path, PathBuf};

use plimsoll_config::{Checker, DeValue, Flaw, quoted, table, text, values, whole};
use plimsoll_discover::kubernetes::{ApiServer, EndpointSlices, ServicePort};
use plimsoll_tls_config::FilePath;

/// The name of a service or namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectName(String);

/// The name or the number of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortChoice(ServicePort);

/// The address of an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress(ApiServer);

table! {
    /// A service with EndpointSlices to follow.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Kubernetes {
        /// Its name.
        pub service: ObjectName = ObjectName::default(), required;
        /// Its namespace. `None`: that of the service account.
        pub namespace: Option<ObjectName> = None, optional;
        /// Its port. `None`: the only one.
        pub port: Option<PortChoice> = None, optional;
        /// The API server. `None`: that of the cluster that this process runs in.
        pub server: Option<ServerAddress> = None, optional;
        /// The folder with token, authority and namespace. `None`: the usual one of a pod.
        pub service_account: Option<FilePath> = None, optional;
    }
}

/// A service to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    settings: Kubernetes,
    account: Option<PathBuf>,
}

impl Kubernetes {
    /// The service, for a configuration in `folder`.
    pub(super) fn within(self, folder: &Path) -> Service {
        Service { account: self.service_account.as_ref().map(|account| account.within(folder)), settings: self }
    }

    /// Reports a token that would never be sent.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        let Some(ServerAddress(server)) = &self.server else { return };
        if self.service_account.is_some() && !server.is_safe() {
            let reason = "the token would pass the network in the clear, so it is not sent";
            let help = "write an https:// address in server, or remove service_account";
            checker.report(format!("{path}.service_account"), reason, help);
        }
    }
}

impl Service {
    pub(crate) fn source(&self) -> EndpointSlices {
        let Self { settings: Kubernetes { service, namespace, port, server, .. }, account } = self;
        let checked = "the configuration has checked it";
        let mut source = EndpointSlices::new(&service.0).expect(checked);
        if let Some(namespace) = namespace {
            source = source.namespace(&namespace.0).expect(checked);
        }
        if let Some(PortChoice(port)) = port {
            source = source.port(port.clone());
        }
        if let Some(ServerAddress(server)) = server {
            source = source.server(server.clone());
        }
        if let Some(account) = account { source.service_account(account) } else { source }
    }
}

fn name(text: &str) -> Result<ObjectName, Flaw> {
    let help = "use at most 63 of a-z, 0-9 and -, such as \"web\"; the namespace is a setting of its own";
    let flaw = |_| Flaw::new(format!("\"{text}\" is no name in Kubernetes"), help);
    EndpointSlices::new(text).map(|_| ObjectName(text.to_owned())).map_err(flaw)
}

fn port(value: &DeValue<'_>) -> Result<PortChoice, Flaw> {
    let help = "write its name in the service, such as \"http\", or the number at the pods from 1 to 65535";
    let flaw = |written: &dyn fmt::Display| Flaw::new(format!("{written} is no port of a service"), help);
    if let DeValue::Integer(_) = value {
        let number = whole::<u16>(value, 1)?;
        return Ok(PortChoice(ServicePort::Number(number)));
    }
    let written = text(value, "a port", "a name in quotes, such as \"http\", or a number, such as 8080")?;
    written.parse().map(PortChoice).map_err(|_| flaw(&quoted(written)))
}

fn server(text: &str) -> Result<ServerAddress, Flaw> {
    let help = "write https://HOST:PORT, or the address of `kubectl proxy`, such as \"http://127.0.0.1:8001\"";
    let flaw = |_| Flaw::new(format!("\"{text}\" is no address of an API server"), help);
    text.parse().map(ServerAddress).map_err(flaw)
}

fn port_as_written(port: &ServicePort) -> String {
    match port {
        ServicePort::Number(number) => number.to_string(),
        ServicePort::Named(name) => quoted(name),
        // No text is read as that.
        ServicePort::Only => quoted(""),
    }
}

values! {
    ObjectName: |v| name(text(v, "a name", "a name in quotes, such as \"web\"")?), |name| quoted(&name.0);
    PortChoice: |v| port(v), |port| port_as_written(&port.0);
    ServerAddress: |v| server(text(v, "an address", "an address in quotes, such as \"http://127.0.0.1:8001\"")?), |server| quoted(&server.0);
}
