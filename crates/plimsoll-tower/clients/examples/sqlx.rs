//! A limit on queries in progress, by criticality, before a pool of sqlx.
//! `cargo run --example sqlx`

use plimsoll_core::Criticality;
use plimsoll_core::admit::QueueConfig;
use plimsoll_tower::classify::with_facts;
use plimsoll_tower::{BoxError, ByResult, ConcurrencyLayer, RequestFacts};
use sqlx::sqlite::SqlitePoolOptions;
use tower::{Service, ServiceBuilder, ServiceExt as _};

#[derive(Clone, Copy)]
struct Query {
    sql: &'static str,
    criticality: Criticality,
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), BoxError> {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;

    // As many as the pool has connections: the others wait here, by criticality.
    let classify = with_facts(ByResult, |query: &Query, facts: RequestFacts| facts.with_criticality(query.criticality));
    let layer = ConcurrencyLayer::new(QueueConfig::new(1).expect("not zero"), classify);
    let mut database = ServiceBuilder::new().layer(&layer).service(tower::service_fn(move |query: Query| {
        let pool = pool.clone();
        async move { sqlx::query_scalar::<_, i64>(query.sql).fetch_one(&pool).await }
    }));

    let queries: Vec<_> = (0..5)
        .map(|number| {
            let criticality = if number == 4 { Criticality::CriticalPlus } else { Criticality::Sheddable };
            database.call(Query { sql: "SELECT 6 * 7", criticality })
        })
        .collect();
    assert_eq!((layer.limit().in_progress(), layer.limit().waiting()), (1, 4));
    for query in queries {
        tokio::spawn(query);
    }
    let query = Query { sql: "SELECT 6 * 7", criticality: Criticality::Critical };
    assert_eq!(database.ready().await?.call(query).await?, 42);
    println!("answered");
    Ok(())
}
