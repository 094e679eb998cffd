//! TLS on both sides, and the PROXY protocol: what a client gets, and what a backend gets to see.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_core::health::State;
use plimsoll_proxy::Proxy;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion};
use support::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const GET: &str = "GET / HTTP/1.1\r\nhost: a.example\r\n\r\n";

#[tokio::test]
async fn clients_speak_the_protocol_that_alpn_settles() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let tls = folder.listener(&authority, &["a.example"]);
    let backend = Backend::echo().await;
    let proxy = start(&config(backend.address, &tls, "")).await;
    let address = address_of(&proxy, "main");

    let seen = ask(&mut authority.client(&["http/1.1"]).connect("a.example", address).await.unwrap(), GET).await;
    assert!(seen.contains("x-forwarded-proto: https\n") && seen.contains("via: 1.1 plimsoll\n"), "{seen}");
    let seen = ask(&mut authority.client(&[]).connect("a.example", address).await.unwrap(), GET).await;
    assert!(seen.starts_with("GET / HTTP/1.1"), "{seen}");

    let stream = authority.client(&["h2", "http/1.1"]).connect("a.example", address).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("https://a.example/x").body(Empty::<Bytes>::new()).unwrap();
    let body = soon(send.send_request(request)).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let seen = String::from_utf8(body.to_vec()).unwrap();
    assert!(seen.contains("x-forwarded-host: a.example\n") && seen.contains("via: 2.0 plimsoll\n"), "{seen}");
    assert_eq!(proxy.listeners()[0].tls_handshakes, [("full", 3), ("resumed", 0)]);
}

#[tokio::test]
async fn a_reload_shows_another_certificate_and_leaves_connections_and_sessions_alone() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let tls = folder.listener(&authority, &["a.example"]);
    let backend = Backend::echo().await;
    let text = config(backend.address, &tls, "");
    let proxy = start(&text).await;
    let address = address_of(&proxy, "main");
    let client = authority.client(&["http/1.1"]);
    let mut open = client.connect("a.example", address).await.unwrap();
    ask(&mut open, GET).await;
    let before = certificate_of(&open);

    // The same paths, another certificate.
    folder.listener(&authority, &["a.example"]);
    proxy.reload(parse(&text)).await.unwrap();
    ask(&mut open, GET).await;
    let resumed = client.connect("a.example", address).await.unwrap();
    assert_eq!(resumed.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));
    let fresh = authority.client(&["http/1.1"]).connect("a.example", address).await.unwrap();
    assert_ne!(certificate_of(&fresh), before);

    // A file that is gone is a problem of the file that names it.
    std::fs::remove_file(folder.0.join("server.key")).unwrap();
    let error = plimsoll_proxy::config::Config::parse("test", &text).unwrap_err().to_string();
    assert!(error.contains("listeners[0].tls.certificates[0].key: ") && error.contains("cannot be read"), "{error}");
    ask(&mut open, GET).await;
}

#[tokio::test]
async fn sessions_end_with_a_reload_that_asks_for_other_clients() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let tls = folder.listener(&authority, &["a.example"]);
    let backend = Backend::echo().await;
    let proxy = start(&config(backend.address, &tls, "")).await;
    let address = address_of(&proxy, "main");
    let client = authority.client(&["http/1.1"]);
    ask(&mut client.connect("a.example", address).await.unwrap(), GET).await;
    let ca = folder.write("clients.pem", &authority.pem);
    let strict = format!("{tls}client_ca = \"{}\"\nclient_certificate = \"required\"\n", ca.display());
    proxy.reload(parse(&config(backend.address, &strict, ""))).await.unwrap();
    assert!(refused(client.connect("a.example", address).await).await, "a session of before let a client in");
}

#[tokio::test]
async fn routes_know_clients_by_their_certificates() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = folder.write("clients.pem", &authority.pem);
    let tls = folder.listener(&authority, &["a.example"]);
    let tls = format!("{tls}client_ca = \"{}\"\nclient_certificate = \"optional\"\n", ca.display());
    let (everybody, web) = (Backend::echo().await, Backend::echo().await);
    let text = config(everybody.address, &tls, "");
    let text = format!(
        "{text}[clusters.web]\nbackends = [\"{}\"]\n[[routes]]\ncluster = \"web\"\nclient_names = [\"spiffe://td/web/*\"]\n",
        web.address
    );
    let proxy = start(&text).await;
    let address = address_of(&proxy, "main");
    let client = authority.client(&["http/1.1"]);
    ask(&mut client.connect("a.example", address).await.unwrap(), GET).await;
    assert_eq!((everybody.requests(), web.requests()), (1, 0));
    let known = authority.client(&["http/1.1"]).showing(authority.sign(&["spiffe://td/web/a"]));
    ask(&mut known.connect("a.example", address).await.unwrap(), GET).await;
    assert_eq!((everybody.requests(), web.requests()), (1, 1));

    let stranger = authority.client(&["http/1.1"]).showing(Authority::new().sign(&["spiffe://td/web/a"]));
    assert!(refused(stranger.connect("a.example", address).await).await);
    until(|| failures(&proxy, "client-certificate") == 1).await;
}

#[tokio::test]
async fn who_shows_a_certificate_shows_it_each_time() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = folder.write("clients.pem", &authority.pem);
    let tls = folder.listener(&authority, &["a.example"]);
    let backend = Backend::echo().await;
    for rule in ["required", "optional"] {
        let tls = format!("{tls}client_ca = \"{}\"\nclient_certificate = \"{rule}\"\n", ca.display());
        let text = config(backend.address, &tls, "");
        let proxy = start(&text).await;
        let address = address_of(&proxy, "main");
        for version in [&TLS12, &TLS13] {
            let client = authority.client(&["http/1.1"]).speaking(version).showing(authority.sign(&["web.example"]));
            for _ in 0..3 {
                let mut stream = client.connect("a.example", address).await.unwrap();
                assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full), "{rule}, {version:?}");
                ask(&mut stream, GET).await;
                proxy.reload(parse(&text)).await.unwrap();
            }
        }
        assert_eq!(proxy.listeners()[0].tls_handshakes, [("full", 6), ("resumed", 0)]);
    }
}

#[tokio::test]
async fn what_is_no_tls_is_told_so_or_closed_and_counted() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let tls = format!("header_read_timeout = \"50ms\"\n{}", folder.listener(&authority, &["a.example"]));
    let backend = Backend::echo().await;
    let proxy = start(&config(backend.address, &tls, "")).await;
    let address = address_of(&proxy, "main");
    let mut plain = Raw::to(address).await;
    let answer = plain.ask(GET).await;
    assert_eq!((answer.status, answer.body.as_str()), (400, "plain-http: this port speaks TLS; use https"));
    let mut junk = Raw::to(address).await;
    junk.send("\0\0\0\0\0\0\0\0").await;
    until(|| failures(&proxy, "tls") == 1).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(soon(silent.read(&mut [0])).await.unwrap_or(0), 0);
    until(|| failures(&proxy, "timeout") == 1).await;
    drop(TcpStream::connect(address).await.unwrap());
    until(|| failures(&proxy, "closed") == 1).await;
    until(|| failures(&proxy, "plain-http") == 1).await;
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn backends_are_spoken_to_in_tls_and_must_be_who_they_should_be() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = folder.write("ca.pem", &authority.pem);
    let other_ca = folder.write("other.pem", &Authority::new().pem);
    // A proxy with TLS is a backend with TLS, which asks for certificates too.
    let tls = folder.listener(&authority, &["web.internal"]);
    let tls = format!("{tls}client_ca = \"{}\"\nclient_certificate = \"required\"\n", ca.display());
    let echo = Backend::echo().await;
    let behind = start(&config(echo.address, &tls, "")).await;
    let (certificate, key) = authority.sign(&["proxy.internal"]);
    let (certificate, key) = (folder.write("client.pem", &certificate), folder.write("client.key", &key));
    let cluster = |ca: &PathBuf, name: &str, more: &str| {
        format!(
            "{more}\n[clusters.c.tls]\nca = \"{}\"\nserver_name = \"{name}\"\ncertificate = \"{}\"\nkey = \"{}\"\n",
            ca.display(),
            certificate.display(),
            key.display()
        )
    };
    let at = address_of(&behind, "main");
    for protocol in ["http1", "http2"] {
        let more = format!("protocol = \"{protocol}\"\nhealth.check = \"http\"");
        let front = start(&config(at, "", &cluster(&ca, "web.internal", &more))).await;
        let seen = Raw::to(address_of(&front, "main")).await.ask(GET).await;
        assert_eq!(seen.status, 200);
        let via = if protocol == "http2" { "via: 2.0 plimsoll\n" } else { "via: 1.1 plimsoll\n" };
        assert!(seen.body.contains("host: a.example\n") && seen.body.contains(via), "{}", seen.body);
    }
    for (ca, name) in [(&other_ca, "web.internal"), (&ca, "other.internal")] {
        let text = config(at, "", &cluster(ca, name, "connect_timeout = \"5s\""));
        let front = Proxy::start(parse(&text)).await.unwrap();
        until(|| {
            let backends = front.clusters()[0].backends();
            backends[0].snapshot.state == State::Refusing
        })
        .await;
        assert_eq!(Raw::to(address_of(&front, "main")).await.ask(GET).await.status, 503);
    }
}

#[tokio::test]
async fn a_reload_that_trusts_others_opens_connections_to_backends_anew() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = folder.write("ca.pem", &authority.pem);
    let echo = Backend::echo().await;
    let behind = start(&config(echo.address, &folder.listener(&authority, &["web.internal"]), "")).await;
    for protocol in ["http1", "http2"] {
        let text = |trust: &str| {
            let cluster = format!("protocol = \"{protocol}\"\nmin_connections = 0\n[clusters.c.tls]\n{trust}\n");
            config(address_of(&behind, "main"), "", &cluster)
        };
        let verified = text(&format!("ca = \"{}\"\nserver_name = \"web.internal\"", ca.display()));
        let front = start(&text("insecure_accept_any_certificate = true")).await;
        let counts = || {
            let counts = front.clusters()[0].backends()[0].counts;
            (counts.connections_opened, counts.connections_closed)
        };
        let mut client = Raw::to(address_of(&front, "main")).await;
        assert_eq!((client.ask(GET).await.status, counts()), (200, (1, 0)));
        front.reload(parse(&verified)).await.unwrap();
        until(|| counts() == (1, 1)).await;
        assert_eq!((client.ask(GET).await.status, counts()), (200, (2, 1)));
        // What is in the file is the same.
        front.reload(parse(&verified)).await.unwrap();
        assert_eq!((client.ask(GET).await.status, counts()), (200, (2, 1)));
    }
}

#[tokio::test]
async fn grpc_checks_and_requests_speak_tls() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = folder.write("ca.pem", &authority.pem);
    let tls = folder.listener(&authority, &["web.internal"]);
    let serving = Backend::start(|request| async move {
        let is_check = request.uri().path() == "/grpc.health.v1.Health/Check";
        // SERVING, as a message in its frame; an echo of the scheme else.
        let answer = if is_check { Bytes::from_static(&[0, 0, 0, 0, 2, 8, 1]) } else { Bytes::new() };
        let mut response = http::Response::new(full(answer));
        response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        response.headers_mut().insert("grpc-status", "0".parse().unwrap());
        if let Some(proto) = request.headers().get("x-forwarded-proto") {
            response.headers_mut().insert("x-seen-proto", proto.clone());
        }
        response
    })
    .await;
    let behind = start(&config(serving.address, &tls, "protocol = \"http2\"")).await;
    let more = format!(
        "protocol = \"http2\"\nhealth.check = \"grpc\"\n[clusters.c.tls]\nca = \"{}\"\nserver_name = \"web.internal\"\n",
        ca.display()
    );
    let front = start(&config(address_of(&behind, "main"), "", &more)).await;
    let (mut send, _) = http2::<Empty<Bytes>>(address_of(&front, "main")).await;
    let request = Request::post("http://a.example/s.S/M").header("content-type", "application/grpc");
    let response = soon(send.send_request(request.body(Empty::new()).unwrap())).await.unwrap();
    assert_eq!(
        (&response.headers()["grpc-status"], &response.headers()["x-seen-proto"]),
        (&"0".parse().unwrap(), &"https".parse().unwrap())
    );
}

#[tokio::test]
async fn the_address_of_the_proxy_protocol_is_passed_on_from_proxy_to_proxy() {
    let echo = Backend::echo().await;
    let behind_in = "proxy_protocol = \"any\"\ntrusted_proxies = [\"127.0.0.0/8\"]\n";
    let behind = start(&config(echo.address, behind_in, "")).await;
    for (version, header) in [
        ("v1", &b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"[..]),
        ("v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb"),
    ] {
        let listener = format!("proxy_protocol = \"{version}\"\ntrusted_proxies = [\"127.0.0.1\"]\n");
        let cluster = format!("proxy_protocol = \"{version}\"");
        let front = start(&config(address_of(&behind, "main"), &listener, &cluster)).await;
        let mut client = Raw::to(address_of(&front, "main")).await;
        client.send_if_wanted(header).await;
        for _ in 0..2 {
            let seen = client.ask(GET).await.body;
            assert!(seen.contains("x-forwarded-for: 192.0.2.7\n"), "{version}: {seen}");
            assert!(seen.contains("x-forwarded-port: 443\n"), "{version}: {seen}");
        }
        let mut other = Raw::to(address_of(&front, "main")).await;
        other.send_if_wanted(GET.as_bytes()).await;
        assert_eq!(other.rest().await, "");
        until(|| failures(&front, "proxy-header") == 1).await;
    }
}

#[tokio::test]
async fn nobody_but_trusted_proxies_may_send_a_proxy_header() {
    let backend = Backend::echo().await;
    let listener = "proxy_protocol = \"any\"\ntrusted_proxies = [\"10.0.0.0/8\"]\n";
    let proxy = start(&config(backend.address, listener, "")).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send_if_wanted(b"PROXY UNKNOWN\r\n").await;
    assert_eq!(client.rest().await, "");
    until(|| failures(&proxy, "untrusted") == 1).await;
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn the_host_that_a_route_rewrites_goes_to_the_backend() {
    let backend = Backend::echo().await;
    let text = config(backend.address, "", "").replace("[[routes]]", "[[routes]]\nhost_rewrite = \"web.internal\"");
    let proxy = start(&text).await;
    let seen = Raw::to(address_of(&proxy, "main")).await.ask(GET).await.body;
    assert!(seen.contains("host: web.internal\n") && seen.contains("x-forwarded-host: a.example\n"), "{seen}");
}

/// Sends a request over TLS, and reads the answer's body.
async fn ask(stream: &mut TlsStream<TcpStream>, request: &str) -> String {
    soon(async {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        loop {
            let so_far = String::from_utf8_lossy(&text).into_owned();
            if let Some((head, body)) = so_far.split_once("\r\n\r\n") {
                let length = head.to_lowercase();
                let length = length.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
                if body.len() == length.parse::<usize>().unwrap() {
                    return body.to_owned();
                }
            }
            assert!(stream.read_buf(&mut text).await.unwrap() > 0, "{so_far}");
        }
    })
    .await
}

/// Whether a connection is of no use: in TLS 1.3 a server refuses after the client thinks that it is done.
async fn refused(connected: std::io::Result<TlsStream<TcpStream>>) -> bool {
    let Ok(mut stream) = connected else { return true };
    let _ = stream.write_all(GET.as_bytes()).await;
    !matches!(soon(stream.read(&mut [0])).await, Ok(read) if read > 0)
}

fn certificate_of(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

fn failures(proxy: &Proxy, reason: &str) -> u64 {
    let listeners = proxy.listeners();
    listeners[0].failed_handshakes.iter().find(|(name, _)| *name == reason).unwrap().1
}

/// An authority that signs what a test asks for.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for these names and its key, in PEM.
    fn sign(&self, names: &[&str]) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let san = |name: &&str| {
            let text = (*name).try_into().unwrap();
            if name.contains("://") { SanType::URI(text) } else { SanType::DnsName(text) }
        };
        params.subject_alt_names = names.iter().map(san).collect();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A client that trusts this authority.
    fn client(&self, protocols: &[&str]) -> Client {
        Client {
            authority: CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap(),
            protocols: protocols.iter().map(|name| name.as_bytes().to_vec()).collect(),
            versions: vec![&TLS13, &TLS12],
            config: None,
        }
        .with(None)
    }
}

/// A client, with the sessions that it has had.
struct Client {
    authority: CertificateDer<'static>,
    protocols: Vec<Vec<u8>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    config: Option<Arc<ClientConfig>>,
}

impl Client {
    fn with(self, shows: Option<(String, String)>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(plimsoll::tls::provider());
        let builder = builder.with_protocol_versions(&self.versions).unwrap().with_root_certificates(roots);
        let mut config = match shows {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        };
        config.alpn_protocols.clone_from(&self.protocols);
        Self { config: Some(Arc::new(config)), ..self }
    }

    /// Speaks this version only.
    fn speaking(self, version: &'static SupportedProtocolVersion) -> Self {
        Self { versions: vec![version], ..self }.with(None)
    }

    fn showing(self, shows: (String, String)) -> Self {
        self.with(Some(shows))
    }

    async fn connect(&self, host: &'static str, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(address).await?;
        let connector = TlsConnector::from(Arc::clone(self.config.as_ref().expect("was made")));
        soon(connector.connect(ServerName::try_from(host).unwrap(), tcp)).await
    }
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("plimsoll-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The settings of a listener with a certificate for these names, in files that are written for it.
    fn listener(&self, authority: &Authority, names: &[&str]) -> String {
        let (certificate, key) = authority.sign(names);
        let (certificate, key) = (self.write("server.pem", &certificate), self.write("server.key", &key));
        format!(
            "[listeners.tls]\ncertificates = [{{ certificate = \"{}\", key = \"{}\" }}]\n",
            certificate.display(),
            key.display()
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
