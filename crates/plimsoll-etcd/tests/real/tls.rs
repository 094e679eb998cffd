//! TLS with client certificates.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::tls::file::{authorities, certificates, private_key};
use plimsoll::tls::{Identity, RootCertStore, TlsConfig, TlsTrust};
use plimsoll_etcd::{Client, EtcdConfig, EtcdError, Mirror, Session, Txn};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

use crate::etcd::{Etcd, mirror_until, programs, until};

fn issue(name: &str, issuer: &Issuer<'_, KeyPair>) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    (params.signed_by(&key, issuer).unwrap(), key)
}

#[tokio::test]
async fn client_needs_its_certificate() {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let (server, server_key) = issue("etcd.internal", &issuer);
    let (certificate, key) = issue("proxy.internal", &issuer);
    let folder = std::env::temp_dir().join(format!("plimsoll-etcd-tls-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let files = [
        ("authority.pem", authority.pem()),
        ("server.pem", server.pem()),
        ("server.key", server_key.serialize_pem()),
        ("client.pem", certificate.pem()),
        ("client.key", key.serialize_pem()),
    ];
    let [ca, cert, key, client_cert, client_key] = files.map(|(name, text)| {
        fs::write(folder.join(name), text).unwrap();
        folder.join(name)
    });
    let identity = Identity::new(certificates(&client_cert).unwrap(), private_key(&client_key).unwrap()).unwrap();
    let trust = TlsTrust::Authorities(Arc::new(authorities(&ca).unwrap()));
    let [ca, cert, key] = [ca, cert, key].map(|path| path.into_os_string().into_string().unwrap());

    for program in programs() {
        let arguments = ["--cert-file", &cert, "--key-file", &key, "--client-cert-auth", "--trusted-ca-file", &ca];
        let mut etcd = Etcd::new(&program, 1, &arguments);
        etcd.spawn(0);
        let client = |trust: TlsTrust, identity: Option<Identity>| {
            let config = EtcdConfig::new(etcd.endpoints()).unwrap();
            Client::new(config.tls(move || Ok(TlsConfig::new(trust.clone(), identity.clone(), None))))
        };
        let known = client(trust.clone(), Some(identity.clone()));
        until("etcd answers", async || known.get("/a").await.is_ok()).await;
        let session = Session::start(known.clone(), Duration::from_secs(5));
        let lease = session.lease().wait_for(Option::is_some).await.unwrap().unwrap();
        let key = format!("{}m/a", known.prefix());
        assert!(known.txn(Txn::new().put(&key, "1", Some(lease.id))).await.unwrap().is_done);
        let mut mirror = Mirror::new(known, "m/");
        mirror_until(&mut mirror, "the record", |records| records.len() == 1).await;
        session.end().await.unwrap();
        mirror_until(&mut mirror, "its end", |records| records.is_empty()).await;

        let anonymous = client(trust.clone(), None);
        let stranger = client(TlsTrust::Authorities(Arc::new(RootCertStore::empty())), Some(identity.clone()));
        for client in [anonymous, stranger, etcd.client()] {
            let error = client.get("/a").await.unwrap_err();
            assert!(matches!(error, EtcdError::Unreachable(_)), "{error}");
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}
