//! Settings of TLS, for each program with a file of settings: tables, names of clients, certificates.
//!
//! The proxy and the quota server have the same tables. The files that a table names are read together
//! with it ([`Reader`]), and a problem of a file is a problem of its setting. So `check` finds what a
//! start would, and a reload with an unreadable certificate changes nothing.
#![forbid(unsafe_code)]

mod client_name;
mod expiry;
mod host_name;
mod reader;
mod settings;

pub use client_name::ClientName;
pub use expiry::CertificateExpiry;
pub use host_name::is_host_name;
pub use reader::Reader;
pub use settings::{CertificateFiles, ClientCertificate, ClusterTls, FilePath, ListenerTls};

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
