//! Spreads plain HTTP requests over the backends named on the command line:
//! `cargo run -p plimsoll --example hyper_client 127.0.0.1:8081 127.0.0.1:8082`

use std::collections::BTreeMap;

use http::Request;
use http_body_util::BodyExt as _;
use plimsoll::client::{Client, Cluster};
use plimsoll::{Body, discover};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backends: Vec<String> = std::env::args().skip(1).collect();
    let cluster = Cluster::builder("example").endpoints(discover::resolve(&backends).await?).spawn()?;
    let client = Client::new(&cluster);

    let mut answers = BTreeMap::<_, u32>::new();
    for _ in 0..100 {
        let response = client.send(Request::get("/").body(Body::empty())?).await?;
        *answers.entry((response.body().backend_address(), response.status())).or_default() += 1;
        response.into_body().collect().await?;
    }
    for ((backend, status), count) in answers {
        println!("{backend} answered {status} {count} times");
    }
    Ok(())
}
