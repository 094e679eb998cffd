//! A tonic client over several channels, balanced and throttled, that retries its calls.
//! `cargo run -p plimsoll-tower --example tonic`

mod servers;

use http::Request;
use plimsoll_core::BalancerConfig;
use plimsoll_tower::balance::ServiceList;
use plimsoll_tower::retry::{ReplayBody, ReplayLimits};
use plimsoll_tower::{Balance, BoxError, Grpc, RetryLayer, ThrottleLayer};
use tonic::body::Body;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;
use tower::ServiceBuilder;

#[tokio::main]
pub(crate) async fn main() -> Result<(), BoxError> {
    let mut channels = Vec::new();
    for _ in 0..2 {
        let server = servers::grpc().await.map_err(|error| error.to_string())?;
        channels.push((server, Endpoint::new(format!("http://{server}"))?.connect_lazy()));
    }

    let balance = Balance::new(BalancerConfig::default(), ServiceList::new(channels), Grpc::default());
    let channel = ServiceBuilder::new() // A generated client takes it: GreeterClient::new(channel).
        .layer(RetryLayer::new(Grpc::default()).replay(ReplayLimits::default()))
        .layer(ThrottleLayer::new(Grpc::default()))
        .map_request(|request: Request<ReplayBody<Body>>| request.map(Body::new))
        .buffer(1024)
        .service(balance);
    let mut client = tonic::client::Grpc::new(channel);

    assert_eq!(call(&mut client, "world").await?, "hello world");
    assert_eq!(call(&mut client, "unlucky").await?, "hello unlucky"); // shed, and retried
    let mut throttled = 0;
    for _ in 0..100 {
        let status = call(&mut client, "busy").await.expect_err("it is shed, here or there");
        throttled += u32::from(status.code() != tonic::Code::Unavailable);
    }
    println!("{throttled} of 100 calls were not sent");
    assert!(throttled > 30);
    Ok(())
}

/// A call, as a generated client makes it.
async fn call<T>(client: &mut tonic::client::Grpc<T>, name: &str) -> Result<String, tonic::Status>
where
    T: tonic::client::GrpcService<tonic::body::Body>,
    T::ResponseBody: tonic::codegen::Body<Data = bytes::Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<BoxError> + Send,
{
    client.ready().await.map_err(|error| tonic::Status::unknown(error.into().to_string()))?;
    let path = http::uri::PathAndQuery::from_static("/example.Greeter/Hello");
    let codec = ProstCodec::<String, String>::default();
    let response = client.unary(tonic::Request::new(name.to_owned()), path, codec).await?;
    Ok(response.into_inner())
}
