//! Many tasks in one process, each with a stream of its own and without requests: the load of a quiet
//! fleet on a quota server. `bench/quota` measures the server beside it.
//!
//! ```sh
//! cargo run --release -p plimsoll-quota --example many_tasks -- 127.0.0.1:9800 1000
//! ```

use std::error::Error;

use plimsoll::server::{Lifecycle, ServerLayer};
use plimsoll_quota::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(server), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("usage: many_tasks SERVER COUNT".into());
    };
    let count: usize = count.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut layers = Vec::new();
        for _ in 0..count {
            let layer = ServerLayer::builder(Lifecycle::serving()).build();
            let limits = layer.fleet_limits().ok_or("a layer has admission by default")?;
            tokio::spawn(Client::new([&server], "default")?.run(limits));
            layers.push(layer);
        }
        // Until the process is ended.
        std::future::pending::<Result<(), Box<dyn Error>>>().await
    })
}
