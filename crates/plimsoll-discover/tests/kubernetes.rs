//! EndpointSlices over real sockets, by TLS with the authority of the service account.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll::discover::{Discover, Endpoint};
use plimsoll_discover::kubernetes::EndpointSlices;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// The folder of a service account, removed at the end.
struct Account(PathBuf);

impl Drop for Account {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An account that trusts a new authority, and a server with its certificate for `localhost`.
fn account(name: &str) -> (Account, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let config = ServerConfig::builder_with_provider(plimsoll::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate)],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    let folder = std::env::temp_dir().join(format!("plimsoll-kubernetes-tls-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (file, text) in [("token", "secret-1"), ("namespace", "shop"), ("ca.crt", &authority)] {
        fs::write(folder.join(file), text).unwrap();
    }
    (Account(folder), TlsAcceptor::from(Arc::new(config)))
}

/// A request, and its connection.
async fn accept(listener: &TcpListener, tls: &TlsAcceptor) -> (String, TlsStream<tokio::net::TcpStream>) {
    let mut stream = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (String::from_utf8(head).unwrap(), stream)
}

fn slice(address: &str) -> String {
    format!(
        r#"{{"metadata": {{"name": "web-a", "resourceVersion": "2", "labels": {{"kubernetes.io/service-name": "web"}}}},
        "addressType": "IPv4", "endpoints": [{{"addresses": ["{address}"], "zone": "a"}}],
        "ports": [{{"name": "", "port": 80}}]}}"#
    )
    .replace('\n', " ")
}

#[tokio::test]
async fn list_and_watch_by_tls_with_the_token() {
    let (account, tls) = account("good");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let mut source =
        EndpointSlices::new("web").unwrap().server(server.parse().unwrap()).service_account(account.0.clone());
    let served = tokio::spawn(async move {
        let (list, mut stream) = accept(&listener, &tls).await;
        assert!(list.contains("\r\nauthorization: Bearer secret-1\r\n"), "{list}");
        assert!(list.contains("\r\nhost: localhost:"), "{list}");
        let body = format!(r#"{{"metadata": {{"resourceVersion": "1"}}, "items": [{}]}}"#, slice("10.0.0.1"));
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        let (watch, mut stream) = accept(&listener, &tls).await;
        assert!(watch.contains("&resourceVersion=1&"), "{watch}");
        let event = format!("{{\"type\": \"MODIFIED\", \"object\": {}}}\n", slice("10.0.0.2"));
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all((head.to_owned() + &chunk).as_bytes()).await.unwrap();
        // The client ends the connection.
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    });
    for address in ["10.0.0.1:80", "10.0.0.2:80"] {
        let list = source.next().await.unwrap().unwrap();
        assert_eq!(list, [Endpoint::new(address.parse::<std::net::SocketAddr>().unwrap()).zone("a")]);
    }
    drop(source);
    served.await.unwrap();
}

#[tokio::test]
async fn server_of_another_authority_gets_no_token() {
    let ((account, _), (_other, tls)) = (account("one"), account("other"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let mut source =
        EndpointSlices::new("web").unwrap().server(server.parse().unwrap()).service_account(account.0.clone());
    let served = tokio::spawn(async move { tls.accept(listener.accept().await.unwrap().0).await.is_err() });
    let error = source.next().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("cannot connect to https://localhost:") && error.contains("certificate"), "{error}");
    assert!(served.await.unwrap());
}

#[tokio::test]
async fn account_without_an_authority_is_an_error_that_names_the_file() {
    let (account, _) = account("without");
    fs::write(account.0.join("ca.crt"), "").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let mut source =
        EndpointSlices::new("web").unwrap().server(server.parse().unwrap()).service_account(account.0.clone());
    let error = source.next().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("ca.crt holds no certificate in PEM"), "{error}");
}
