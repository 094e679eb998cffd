//! The client under tower middleware: here one that names the program in each request.
//! `cargo run -p plimsoll --example tower_client 127.0.0.1:8081 127.0.0.1:8082`

use http::Request;
use http::header::{HeaderValue, USER_AGENT};
use plimsoll::client::{Client, Cluster};
use plimsoll::{Body, discover};
use tower::{Service as _, ServiceBuilder, ServiceExt as _};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backends: Vec<String> = std::env::args().skip(1).collect();
    let cluster = Cluster::builder("example").endpoints(discover::resolve(&backends).await?).spawn()?;

    let add_agent = |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("example"));
        request
    };
    let mut service = ServiceBuilder::new().map_request(add_agent).service(Client::new(&cluster));
    for _ in 0..10 {
        let response = service.ready().await?.call(Request::get("/").body(Body::empty())?).await?;
        println!("{} from {:?}", response.status(), response.body().backend_address());
    }
    Ok(())
}
