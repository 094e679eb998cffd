//! Prints the records of a prefix as they change, and the lease of a session:
//! `cargo run -p plimsoll-etcd --example follow -- 10.0.0.1:2379,10.0.0.2:2379 services/web/`

use std::time::Duration;

use plimsoll_etcd::{Client, EtcdConfig, Event, Mirror, Record, Session, Update};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoints, prefix] = &arguments[..] else { return Err("usage: follow ENDPOINT[,ENDPOINT]... PREFIX".into()) };
    let client = Client::new(EtcdConfig::new(endpoints.split(','))?);
    let session = Session::start(client.clone(), Duration::from_secs(10));
    let mut lease = session.lease();
    let mut mirror = Mirror::new(client, prefix);
    loop {
        tokio::select! {
            update = mirror.next() => match update {
                Update::Listed => {
                    println!("listed {} at revision {}", mirror.records().len(), mirror.revision());
                    mirror.records().values().for_each(print);
                }
                Update::Events(events) => for event in events {
                    match event {
                        Event::Put(record) => print(&record),
                        Event::Delete(key) => println!("delete {key}"),
                    }
                }
                Update::Contact => {}
                Update::Failed(error) => println!("failed: {error}"),
            },
            Ok(()) = lease.changed() => {
                let lease = *lease.borrow_and_update();
                if let Some(lease) = lease {
                    println!("lease {:x}", lease.id);
                }
            }
        }
    }
}

fn print(record: &Record) {
    println!("put {} {}", record.key, String::from_utf8_lossy(&record.value));
}
