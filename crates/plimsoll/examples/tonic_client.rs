//! The client as the transport of a tonic client. A generated client is made the same way:
//! `GreeterClient::new(Client::new(&cluster))`.
//! `cargo run -p plimsoll --example tonic_client 127.0.0.1:50051 127.0.0.1:50052`

use plimsoll::client::{Check, Client, Cluster};
use plimsoll::discover;
use plimsoll_wire::health::{CHECK_PATH, HealthCheckRequest, HealthCheckResponse};
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backends: Vec<String> = std::env::args().skip(1).collect();
    let cluster = Cluster::builder("example")
        .endpoints(discover::resolve(&backends).await?)
        .check(Check::Grpc { service: String::new() })
        .spawn()?;

    let mut grpc = Grpc::new(Client::<tonic::body::Body>::new(&cluster));
    for _ in 0..10 {
        grpc.ready().await?;
        let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
        let request = tonic::Request::new(HealthCheckRequest::default());
        let response = grpc.unary(request, CHECK_PATH.parse()?, codec).await?;
        println!("{:?}", response.into_inner().status());
    }
    for view in cluster.backends() {
        println!("{}: {} calls", view.backend.label(), view.snapshot.requests);
    }
    Ok(())
}
