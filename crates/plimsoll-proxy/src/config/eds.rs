//! A service at an xDS control plane as a source of backends, as the file writes it.

use plimsoll::tls::TlsConfig;
use plimsoll_config::{Choice, Flaw, Format, quoted, table, text};
use plimsoll_discover::eds::{self, LocalityFrom};
use plimsoll_tls_config::ClusterTls;

use super::address::BackendAddress;

const LOCALITY: Choice<LocalityFrom> = Choice {
    noun: "a property of endpoints",
    names: &[("region", LocalityFrom::Region), ("zone", LocalityFrom::Zone), ("priority", LocalityFrom::Priority)],
};

/// The address of a control plane.
const SERVER: Format<String> = Format {
    read: |v| {
        let server = text(v, "an address", "host and port in quotes, such as \"xds.internal:18000\"")?;
        let help = "write a host and a port, such as \"xds.internal:18000\"; for TLS add the table tls";
        let flaw = || Flaw::new(format!("\"{server}\" is no address of a control plane"), help);
        BackendAddress::read_text(server).map(|address| address.to_string()).ok_or_else(flaw)
    },
    print: |server| quoted(server),
};

/// The name of a service, or a part of a node.
const NAME: Format<String> = Format {
    read: |v| {
        let name = text(v, "a name", "a name in quotes, such as \"web\"")?;
        let help = "use 1 to 1,024 bytes without control characters";
        let flaw = |_| Flaw::new(format!("{} is no name at a control plane", quoted(name)), help);
        eds::Eds::new("localhost:1", name).map(|_| name.to_owned()).map_err(flaw)
    },
    print: |name| quoted(name),
};

table! {
    /// A service at an xDS control plane.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Eds {
        /// The control plane.
        pub server: String = String::new(), required_as(SERVER);
        /// The name of the service: of its cluster load assignment.
        pub service: String = String::new(), required_as(NAME);
        /// The property of endpoints that is their locality.
        pub locality: LocalityFrom = LocalityFrom::Region, value_as(LOCALITY);
        /// This proxy, as the control plane sees it.
        pub node: Option<EdsNode> = None, optional_table;
        /// TLS with the control plane; `None`: in plain text.
        pub tls: Option<ClusterTls> = None, optional_table;
    }
}

table! {
    /// A client of a control plane.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct EdsNode {
        /// Its id. `None`: the name of the machine.
        pub id: Option<String> = None, optional_as(NAME);
        /// Its cluster. `None`: `plimsoll`.
        pub cluster: Option<String> = None, optional_as(NAME);
    }
}

impl Eds {
    /// The source, with the content of the files in `tls`.
    pub(crate) fn source(&self, tls: Option<&TlsConfig>) -> eds::Eds {
        let checked = "the configuration has checked it";
        let mut source = eds::Eds::new(&self.server, &self.service).expect(checked).locality_from(self.locality);
        if let Some(EdsNode { id, cluster }) = &self.node {
            if let Some(id) = id {
                source = source.node_id(id).expect(checked);
            }
            if let Some(cluster) = cluster {
                source = source.node_cluster(cluster).expect(checked);
            }
        }
        if let Some(tls) = tls { source.tls(tls.clone()) } else { source }
    }
}
