//! Throttling and a timeout around a redis connection, which is no service of tower: a closure
//! makes it one. `cargo run --example redis`

mod servers;

use std::time::Duration;

use plimsoll_core::retry::Advice;
use plimsoll_tower::classify::{DynError, by, error_end};
use plimsoll_tower::{BoxError, End, Rejected, ThrottleLayer};
use redis::{AsyncCommands as _, RedisError};
use tower::{Service, ServiceBuilder, ServiceExt as _};

/// The end of a command. A busy server did not serve it.
fn end(result: Result<&String, &DynError>) -> End {
    let Err(error) = result else { return End::Served };
    match error.downcast_ref::<RedisError>() {
        Some(error) if error.code() == Some("BUSY") => End::Overloaded(Advice::None),
        Some(error) if error.code().is_some() => End::Served,
        _ => error_end(error),
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), BoxError> {
    let server = servers::redis().await?;
    let client = redis::Client::open(format!("redis://{server}/"))?;
    let connection = client.get_multiplexed_async_connection().await?;

    let mut get = ServiceBuilder::new().layer(ThrottleLayer::new(by(end))).timeout(Duration::from_secs(1)).service(
        tower::service_fn(move |key: &'static str| {
            let mut connection = connection.clone();
            async move { connection.get::<_, String>(key).await }
        }),
    );

    assert_eq!(get.ready().await?.call("key").await?, "key");
    let mut throttled = 0;
    for _ in 0..100 {
        let error = get.ready().await?.call("busy").await.expect_err("busy, or throttled");
        throttled += u32::from(Rejected::find(&*error).is_some());
    }
    println!("{throttled} of 100 commands were not sent");
    assert!(throttled > 30);
    Ok(())
}
