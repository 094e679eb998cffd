//! The files that a configuration names: certificates, keys, authorities, bodies of answers.
//!
//! They are read with the configuration, and a fault in one is a problem of the setting that names
//! it. So a configuration that was accepted has all that it needs, `check` finds the problems of a
//! start, and a reload that cannot read a certificate changes nothing. An expired certificate is no
//! problem but a warning: refusing to start, or to reload for another reason, would make an outage
//! of a fault that some clients may bear.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll::probe::{Keyring, ProbeKeys};
use plimsoll::tls::{TlsConfig, TlsMaterial};
use plimsoll_config::{Checker, Places, Value as _};
use plimsoll_tls_config::{CertificateExpiry, ClusterTls, FilePath, Reader};

use super::Problem;
use super::answer::MAX_BODY;
use super::cluster::Cluster;
use super::etcd::Etcd;
use super::raw::RawConfig;

/// The content of the files.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// Where relative paths begin.
    pub(super) folder: PathBuf,
    /// By the listener's name.
    pub(super) listeners: BTreeMap<String, Arc<TlsMaterial>>,
    /// The keys of probes, by the listener's name.
    pub(super) listener_probe_keys: BTreeMap<String, Keyring>,
    /// The same certificates for metrics: their dates are read once, not at each scrape.
    pub(super) expiries: BTreeMap<String, Arc<[CertificateExpiry]>>,
    /// By the cluster's name.
    pub(super) clusters: BTreeMap<String, TlsConfig>,
    /// Keys of probes, by the cluster's name.
    pub(super) cluster_probe_keys: BTreeMap<String, ProbeKeys>,
    /// To the control plane that lists the backends, by the cluster's name.
    pub(super) discovery: BTreeMap<String, TlsConfig>,
    /// The client of etcd.
    pub(super) etcd: Option<Etcd>,
    /// To the quota server.
    pub(super) quota: Option<TlsConfig>,
    /// To the collector of traces.
    pub(super) tracing: Option<TlsConfig>,
    /// Bodies of answers.
    pub(super) bodies: BTreeMap<FilePath, Bytes>,
}

/// Reads the files that `raw` names, relative to `folder`, and adds their faults to `problems`.
pub(super) fn read(raw: &RawConfig, folder: &Path, places: &Places, problems: Vec<Problem>) -> (Files, Vec<Problem>) {
    let mut reader = Reader::new(Checker::new(places, problems), folder);
    let mut files = Files { folder: folder.to_owned(), ..Files::default() };
    for (i, listener) in raw.listeners.iter().enumerate() {
        if let Some(tls) = &listener.tls {
            let server = reader.listener(&format!("listeners[{i}].tls"), tls);
            if let Some(server) = server {
                files.expiries.insert(listener.name.clone(), CertificateExpiry::of(&server));
                files.listeners.insert(listener.name.clone(), Arc::new(server));
            }
        }
        if let Some(probes) = &listener.probes {
            let keyring = probes.keyring(&format!("listeners[{i}].probes"), folder, reader.checker());
            files.listener_probe_keys.extend(keyring.map(|keyring| (listener.name.clone(), keyring)));
        }
    }
    for (name, cluster) in &raw.clusters {
        if let Cluster { tls: Some(tls), .. } = cluster {
            let client = reader.cluster(&format!("clusters.{name}.tls"), tls);
            files.clusters.extend(client.map(|client| (name.clone(), client)));
        }
    }
    for (name, cluster) in &raw.clusters {
        if let Some(probes) = &cluster.probes {
            let keys = probes.keys(&format!("clusters.{name}.probes"), folder, reader.checker());
            files.cluster_probe_keys.extend(keys.map(|keys| (name.clone(), keys)));
        }
    }
    for (name, cluster) in &raw.clusters {
        let eds = cluster.discovery.as_ref().and_then(|discovery| discovery.eds.as_ref());
        if let Some(tls) = eds.and_then(|eds| eds.tls.as_ref()) {
            let client = reader.cluster(&format!("clusters.{name}.discovery.eds.tls"), tls);
            files.discovery.extend(client.map(|client| (name.clone(), client)));
        }
    }
    if let Some(tls) = raw.quota.as_ref().and_then(|quota| quota.tls.as_ref()) {
        files.quota = reader.cluster("quota.tls", tls);
    }
    files.etcd = raw.etcd.as_ref().and_then(|etcd| Etcd::new(etcd, "etcd", folder, reader.checker()));
    if let Some(tls) = raw.etcd.as_ref().and_then(|etcd| etcd.tls.as_ref()) {
        reader.cluster("etcd.tls", tls);
    }
    if let Some(tracing) = raw.tracing.as_ref().filter(|tracing| tracing.endpoint.is_tls) {
        let (path, usual) = ("tracing.tls", ClusterTls::default());
        files.tracing = reader.cluster(path, tracing.tls.as_ref().unwrap_or(&usual));
    }
    for (i, route) in raw.routes.iter().enumerate() {
        for (table, answer) in route.answers() {
            if let Some(path) = &answer.file {
                let body = body(&mut reader, folder, format!("routes[{i}].{table}.file"), path);
                files.bodies.extend(body.map(|body| (path.clone(), body)));
            }
        }
    }
    (files, reader.into_problems())
}

fn body(reader: &mut Reader<'_>, folder: &Path, setting: String, path: &FilePath) -> Option<Bytes> {
    let at = path.within(folder);
    let most = MAX_BODY.bytes();
    let read = || -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        // One more, which shows that there is more.
        File::open(&at)?.take(most as u64 + 1).read_to_end(&mut body)?;
        Ok(body)
    };
    match read() {
        Ok(body) if body.len() <= most => return Some(body.into()),
        Ok(_) => {
            let reason = format!("{} is longer than {}", at.display(), MAX_BODY.print());
            reader.checker().report(setting, reason, "shorten it, or let a backend serve it");
        }
        Err(error) => {
            let help = "name a readable file; a relative path begins at the folder of the configuration";
            reader.checker().report(setting, format!("{} cannot be read: {error}", at.display()), help);
        }
    }
    None
}
