//! A peer for the benchmarks: Pingora's quick start, without its log line for each request.
//!
//! `pingora-peer LISTEN BACKEND...`; one thread, round robin, HTTP/1, connections to backends kept.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::lb::LoadBalancer;
use pingora::lb::selection::RoundRobin;
use pingora::prelude::{HttpPeer, ProxyHttp, Result, Server, Session};
use pingora::proxy::http_proxy_service;
use pingora::server::configuration::{Opt, ServerConf};

/// Idle connections to backends; more than the load ever needs.
const KEEPALIVE: usize = 2_048;

struct Balanced(Arc<LoadBalancer<RoundRobin>>);

#[async_trait]
impl ProxyHttp for Balanced {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> Result<Box<HttpPeer>> {
        let backend = self.0.select(b"", 256).expect("backends without health checks are always there");
        Ok(Box::new(HttpPeer::new(backend, false, String::new())))
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().expect("usage: pingora-peer LISTEN BACKEND...");
    let backends: Vec<String> = arguments.collect();
    let conf = ServerConf { threads: 1, upstream_keepalive_pool_size: KEEPALIVE, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None::<Opt>, conf);
    server.bootstrap();
    let balancer = LoadBalancer::try_from_iter(backends).expect("addresses of backends");
    let mut service = http_proxy_service(&server.configuration, Balanced(Arc::new(balancer)));
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever();
}
