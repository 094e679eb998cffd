//! One request to the admin API of a proxy.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::exit::Problem;

/// Time for an answer that the API has at once. A proxy that is alive takes milliseconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two attempts at reading.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Attempts at reading. A connection breaks when a process hands its admin port to a successor.
const MAX_ATTEMPTS: u32 = 3;

/// An admin API.
#[derive(Clone, Copy, Debug)]
pub(super) struct Api {
    pub(super) address: SocketAddr,
}

/// A response of an admin API.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) json: Value,
}

/// No response of an admin API.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// There is no connection.
    Unreachable(io::Error),
    /// The connection ended before the response.
    Broken(String),
    /// Nothing came in time.
    Silent(Duration),
    /// The response is not one of an admin API.
    NotPlimsoll,
}

impl Api {
    /// Reads at `path`; tried again where the connection breaks.
    pub(super) fn get(self, path: &str) -> Result<Answer, Unanswered> {
        for _ in 1..MAX_ATTEMPTS {
            match self.send(Method::GET, path, PATIENCE) {
                Err(Unanswered::Broken(_)) => std::thread::sleep(RETRY_PAUSE),
                answered => return answered,
            }
        }
        self.send(Method::GET, path, PATIENCE)
    }

    /// Sends a command, whose outcome may take as long as `patience`.
    pub(super) fn post(self, path: &str, patience: Duration) -> Result<Answer, Unanswered> {
        self.send(Method::POST, path, patience)
    }

    fn send(self, method: Method, path: &str, patience: Duration) -> Result<Answer, Unanswered> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Unanswered::Unreachable)?;
        let exchange = async { timeout(patience, self.exchange(method, path)).await };
        let (status, body) = runtime.block_on(exchange).map_err(|_| Unanswered::Silent(patience))??;
        let json = serde_json::from_slice(&body).map_err(|_| Unanswered::NotPlimsoll)?;
        Ok(Answer { status, json })
    }

    async fn exchange(self, method: Method, path: &str) -> Result<(u16, Bytes), Unanswered> {
        let broken = |error: hyper::Error| Unanswered::Broken(error.to_string());
        let stream = TcpStream::connect(self.address).await.map_err(Unanswered::Unreachable)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header(HOST, self.address.to_string());
        let request = request.body(Empty::<Bytes>::new()).expect("the paths of the API are valid");
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await.map_err(broken)?.to_bytes()))
    }

    /// The problem that nothing answered here.
    pub(super) fn problem(self, unanswered: &Unanswered) -> Problem {
        let address = self.address;
        let help = "help: name its admin address with --admin, or its pid file with --pid-file";
        match unanswered {
            Unanswered::Unreachable(error) if error.kind() == ErrorKind::ConnectionRefused => {
                Problem::NoProxy(format!("no proxy at {address}: {error}\n  {help}"))
            }
            Unanswered::Unreachable(_) | Unanswered::NotPlimsoll => {
                Problem::NoProxy(format!("no proxy at {address}: {unanswered}\n  {help}"))
            }
            Unanswered::Broken(_) | Unanswered::Silent(_) => Problem::Failed(anyhow::anyhow!(
                "no answer from the proxy at {address}: {unanswered}\n  help: see its log, and `plimsoll status`"
            )),
        }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => error.fmt(f),
            Self::Broken(error) => write!(f, "the connection broke: {error}"),
            Self::Silent(patience) => write!(f, "silent for {}", humantime::format_duration(*patience)),
            Self::NotPlimsoll => f.write_str("the program there is not a plimsoll proxy"),
        }
    }
}

impl Answer {
    /// A field that holds a text.
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.json[field].as_str()
    }

    /// A field that holds a process id.
    pub(super) fn pid(&self) -> Option<u32> {
        self.json["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
    }

    /// The problem in a response that is not an outcome.
    pub(super) fn problem(&self, api: Api) -> Problem {
        if self.status == 404 {
            return Problem::Failed(anyhow::anyhow!(
                "the proxy at {} does not know this command: it is older than this program\n  help: send it a signal: \
                 SIGHUP reloads, SIGUSR2 upgrades, SIGTERM drains",
                api.address
            ));
        }
        let error = self.text("error").unwrap_or("no reason given");
        let help = self.text("help").or_else(|| self.text("mend"));
        let help = help.map(|help| format!("\n  help: {help}")).unwrap_or_default();
        Problem::Failed(anyhow::anyhow!("{error}{help}"))
    }
}
