//! `plimsoll page`: one live page for a fleet of several proxies.
//!
//! ```text
//! proxy ──stream──▶ fleet::follow ──▶ Watch ──each second──▶ fleet::merge ──▶ Viewers ──▶ browser
//! proxy ◀──explain, drain── ask ◀── server ◀───────────────────────────────────────────── browser
//! ```
//! A browser lets the page of one address talk to this address alone. So this process follows the
//! proxies, and its own page shows them as one. Without a viewer it has no connection to them.

mod ask;
mod known;
mod server;
mod watch;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::anyhow;
use http::Method;
use plimsoll_admin::parts::{PAGE_PATH, serve_router};
use plimsoll_proxy::printable;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::watch::Desk;
use crate::admin::events::ask_text;
use crate::admin::failure::Failure;
use crate::browser::Browser;
use crate::exit::{Outcome, Problem, Verdict};
use crate::fleet::follow;
use crate::output::errln;
use crate::{process, signals, units};

/// The address of the page: the port beside that of the admin API.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9901);
/// Proxies of a page. Each takes a connection, and up to 2 MiB while an event of it is read.
const MAX_PROXIES: usize = 64;

/// Arguments of `plimsoll page`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll page edge-1:9900 edge-2:9900 edge-3:9900
  plimsoll page :9900 :9910 --listen :9920 --no-open
  curl 127.0.0.1:9901/api/v1/live

The page shows the sum of the proxies that answer, a row for each proxy, and leads to the page of each. \
Drain and explain go to all of them. Anyone who can reach the address can drain backends: it has no password.

Exits with 0 when it is ended, 1 when it cannot listen, 2 when an address is no proxy's.")]
pub(crate) struct Args {
    /// Admin addresses of the proxies, as HOST:PORT or :PORT
    #[arg(value_name = "ADDR", required = true, value_parser = units::admin_address)]
    addresses: Vec<String>,
    /// Address of the page, as IP:PORT, or :PORT on this machine
    #[arg(long, value_name = "ADDR", value_parser = units::local_address, default_value_t = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// Do not open the page in a browser
    #[arg(long)]
    no_open: bool,
}

impl Args {
    /// The addresses, each once.
    fn proxies(&self) -> Result<Vec<String>, Problem> {
        if self.addresses.len() > MAX_PROXIES {
            return Err(Problem::usage(format!(
                "{} addresses are more than the {MAX_PROXIES} that a page can show\n  help: start a page for each part of the \
                 fleet, each with its own --listen",
                self.addresses.len()
            )));
        }
        for (place, address) in self.addresses.iter().enumerate() {
            if self.addresses[..place].contains(address) {
                return Err(Problem::usage(format!(
                    "the address {address} is named twice\n  help: name each proxy once, or its load counts twice"
                )));
            }
        }
        Ok(self.addresses.clone())
    }
}

/// Serves the page until it is ended.
pub(crate) fn run(args: &Args) -> Outcome {
    let proxies = args.proxies()?;
    process::prepare();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(args, proxies))
}

async fn serve(args: &Args, proxies: Vec<String>) -> Outcome {
    let listener = TcpListener::bind(args.listen).await.map_err(|error| cannot_listen(args.listen, &error))?;
    let address = listener.local_addr()?;
    if proxies.contains(&address.to_string()) {
        return Err(Problem::usage(format!(
            "{address} is the address of this page itself\n  help: name those of proxies"
        )));
    }
    look(&proxies).await?;
    let desk = Arc::new(Desk::new(proxies));
    // They end with this function.
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&desk).run());
    let server = serve_router(listener, server::router(desk), signals::ending());
    // The socket listens already: a browser that is early waits a moment.
    Browser::new(args.no_open).page(address).show();
    server.await;
    Ok(Verdict::Good)
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Problem {
    Problem::Failed(anyhow!(
        "cannot listen at {address}: {error}\n  help: choose another address with --listen, such as :9921"
    ))
}

/// Tells of addresses without an answer, which may come later, and refuses those of other programs.
async fn look(proxies: &[String]) -> Result<(), Problem> {
    let mut asked = JoinSet::new();
    for (place, admin) in proxies.iter().cloned().enumerate() {
        asked.spawn(async move {
            let answer = ask_text(&admin, Method::GET, &follow::path("live", None)).await;
            (place, answer.and_then(|json| follow::read_single(&json)))
        });
    }
    let mut answers: Vec<_> = asked.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    for (place, answer) in answers {
        let admin = &proxies[place];
        match answer {
            Ok(_) => {}
            Err(failure @ Failure::Quota) => return Err(failure.problem(admin)),
            Err(Failure::Foreign(why)) => {
                let why = printable(&why).into_owned();
                let help = "name the admin addresses of proxies of this version, see [admin] in their configurations";
                return Err(Problem::NoProxy(format!("no proxy at {admin}: {why}\n  help: {help}")));
            }
            Err(failure) => errln!("warning: no answer from {admin}: {failure}; the page goes on asking"),
        }
    }
    Ok(())
}

/// Where the page is.
fn index() -> String {
    format!(
        "plimsoll {} page over several proxies\n\n\
         GET    {PAGE_PATH:<52} the live page\n\
         GET    /api/v1/live                                         the state of all proxies as one; ?cluster=\n\
         GET    /api/v1/live/stream                                  the same each second, after ten minutes of history\n\
         GET    /api/v1/explain                                      latest requests at all proxies; ?reason=, ?last=20\n\
         GET    /api/v1/explain/{{id}}                                 one request, by its x-request-id\n\
         POST   /api/v1/clusters/{{name}}/backends/{{address}}/drain     send it no new requests, at all proxies\n\
         POST   /api/v1/clusters/{{name}}/backends/{{address}}/undrain   send requests to it again, after a check\n\
         GET    /healthz                                             200 while the process runs\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn proxies(line: &str) -> Result<Vec<String>, String> {
        let args = Line::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?.args;
        args.proxies().map_err(|problem| problem.to_string())
    }

    #[test]
    fn addresses_are_named_once_each_and_are_few() {
        assert_eq!(proxies("page :9900 edge-1:9900").unwrap(), ["127.0.0.1:9900", "edge-1:9900"]);
        assert!(proxies("page").unwrap_err().contains("ADDR"));
        assert!(proxies("page :9900 127.0.0.1:9900").unwrap_err().contains("named twice"));
        let many: Vec<String> = (1..=MAX_PROXIES + 1).map(|port| format!(":{port}")).collect();
        assert!(proxies(&format!("page {}", many.join(" "))).unwrap_err().contains("65 addresses"));
        assert_eq!(proxies(&format!("page {}", many[1..].join(" "))).unwrap().len(), MAX_PROXIES);
    }

    #[test]
    fn index_is_a_table() {
        let index = index();
        let columns: Vec<usize> =
            index.lines().skip(2).map(|line| line[7..].find("  ").map_or(0, |place| place + 7)).collect();
        assert_eq!(columns.len(), 8, "{index}");
        assert!(index.lines().all(|line| line.len() <= 120), "{index}");
    }
}
