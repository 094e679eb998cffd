//! The client under tower middleware: here one that names the program in each request.
//! `cargo run -p plimsoll --example tower_client 127.0.0.1:8081 127.0.0.1:8082`

use bytes::Bytes;
use http::Request;
use http::header::{HeaderValue, USER_AGENT};
use http_body_util::Empty;
use plimsoll::client::{Client, Cluster, ClusterConfig};
use plimsoll::discover;
use tower::{Service as _, ServiceBuilder, ServiceExt as _};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backends: Vec<String> = std::env::args().skip(1).collect();
    let cluster = Cluster::new("example", ClusterConfig::default(), discover::resolve(&backends).await?);
    tokio::spawn(cluster.run());

    let add_agent = |mut request: Request<Empty<Bytes>>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("example"));
        request
    };
    let mut service = ServiceBuilder::new().map_request(add_agent).service(Client::new(&cluster));
    for _ in 0..10 {
        let response = service.ready().await?.call(Request::get("/").body(Empty::new())?).await?;
        println!("{} from {:?}", response.status(), response.body().backend_address());
    }
    Ok(())
}
