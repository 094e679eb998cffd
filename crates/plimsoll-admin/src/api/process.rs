//! Requests about the process: its status, and the commands reload, upgrade and drain.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Shared;
use super::answer::{Form, Problem};
use super::client::{Client, check};
use crate::control::{Control, Declined};
use crate::fleet::Fleet;

pub(super) async fn status(State(fleet): State<Shared>, form: Form) -> Result<Response, Problem> {
    Ok(form.json(&find(&*fleet)?.status()))
}

pub(super) async fn reload(State(fleet): State<Shared>, form: Form, client: Client) -> Result<Response, Problem> {
    let done = commanded(&*fleet, client).await?.reload().await.map_err(declined)?;
    Ok(outcome(form, done.error.is_none(), &done))
}

pub(super) async fn upgrade(State(fleet): State<Shared>, form: Form, client: Client) -> Result<Response, Problem> {
    let done = commanded(&*fleet, client).await?.upgrade().await.map_err(declined)?;
    Ok(outcome(form, done.error.is_none(), &done))
}

pub(super) async fn drain(State(fleet): State<Shared>, form: Form, client: Client) -> Result<Response, Problem> {
    let process = commanded(&*fleet, client).await?;
    process.drain();
    Ok((StatusCode::ACCEPTED, form.json(&process.status())).into_response())
}

fn outcome(form: Form, is_good: bool, done: &impl Serialize) -> Response {
    let status = if is_good { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    (status, form.json(done)).into_response()
}

fn find(fleet: &dyn Fleet) -> Result<&dyn Control, Problem> {
    let missing = || Problem::new(StatusCode::NOT_FOUND, "this program takes no commands", "GET / lists all pages");
    fleet.control().ok_or_else(missing)
}

/// The process, for a client that may command it.
async fn commanded(fleet: &dyn Fleet, client: Client) -> Result<&dyn Control, Problem> {
    check(client, "the process takes commands").await?;
    find(fleet)
}

fn declined(declined: Declined) -> Problem {
    Problem::new(StatusCode::CONFLICT, declined.error, declined.help)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::Arc;

    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;
    use crate::api::router;
    use crate::api::tests::{Still, fleet};
    use crate::caller::Caller;
    use crate::control::{Pending, ProcessView, ReloadView, UpgradeView};
    use crate::discovery::Unserved;
    use crate::explain::{Explained, Wanted};
    use crate::fleet::{BackendOrder, Obeyed, Refused};
    use crate::live::{LiveClusterSnapshot, LivePage, LiveSnapshot, LiveSource};
    use crate::readiness::Readiness;
    use crate::snapshot::FleetSnapshot;

    /// A fleet in a process that notes its commands: it refuses each reload, and has a successor at once.
    struct Commanded {
        fleet: Still,
        commands: Mutex<Vec<&'static str>>,
    }

    impl LiveSource for Commanded {
        fn readiness(&self) -> Readiness {
            self.fleet.readiness()
        }
        fn page(&self) -> &LivePage {
            self.fleet.page()
        }
        fn live(&self) -> LiveSnapshot {
            self.fleet.live()
        }
        fn live_cluster(&self, name: &str, rows: usize) -> Option<LiveClusterSnapshot> {
            self.fleet.live_cluster(name, rows)
        }
    }

    impl Fleet for Commanded {
        fn is_called(&self, name: &str) -> bool {
            self.fleet.is_called(name)
        }
        fn unserved(&self) -> Vec<Unserved> {
            self.fleet.unserved()
        }
        fn snapshot(&self) -> FleetSnapshot {
            self.fleet.snapshot()
        }
        fn explain(&self, wanted: &Wanted) -> Explained {
            self.fleet.explain(wanted)
        }
        fn override_backend(&self, order: BackendOrder) -> Result<Obeyed, Refused> {
            self.fleet.override_backend(order)
        }
        fn control(&self) -> Option<&dyn Control> {
            Some(self)
        }
    }

    impl Control for Commanded {
        fn status(&self) -> ProcessView {
            ProcessView {
                version: "1.2.3",
                pid: 7,
                started_at: 1.0,
                uptime_s: 2.0,
                config_file: None,
                state: "ready",
                draining_for_s: None,
                drain_timeout_s: 30.0,
                requests_in_flight: 0,
                connections: 0,
                listeners: Vec::new(),
                clusters: Vec::new(),
                last_reload: None,
                last_failed_upgrade: None,
            }
        }
        fn reload(&self) -> Pending<ReloadView> {
            self.commands.lock().push("reload");
            let error = Some("a.toml: bad".to_owned());
            Box::pin(async { Ok(ReloadView { result: "refused", error, ..ReloadView::default() }) })
        }
        fn upgrade(&self) -> Pending<UpgradeView> {
            self.commands.lock().push("upgrade");
            Box::pin(async { Ok(UpgradeView { result: "serving", pid: Some(8), error: None }) })
        }
        fn drain(&self) {
            self.commands.lock().push("drain");
        }
    }

    /// Sends a request as a client of this process does, or as one on another machine.
    async fn send(commanded: &Arc<Commanded>, method: &str, path: &str, is_local: bool) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let remote = SocketAddr::from(([192, 0, 2, 1], 5));
        let peer = if is_local { client.local_addr().unwrap() } else { remote };
        request.extensions_mut().insert(Caller::new(peer, listener.local_addr()));
        let fleet: Arc<dyn Fleet> = Arc::<Commanded>::clone(commanded);
        let response = router(fleet).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn commands_are_taken_from_this_machine_only() {
        let commanded = Arc::new(Commanded { fleet: fleet(), commands: Mutex::default() });
        for command in ["reload", "upgrade", "drain"] {
            let path = format!("/api/v1/process/{command}");
            let (status, refusal) = send(&commanded, "POST", &path, false).await;
            assert_eq!(status, 403, "{refusal}");
            assert!(refusal["error"].as_str().unwrap().contains("its own machine only"), "{refusal}");
        }
        assert_eq!(*commanded.commands.lock(), [""; 0]);
        assert_eq!(send(&commanded, "GET", "/api/v1/process", false).await.0, 200, "anybody may read");
    }

    #[tokio::test]
    async fn command_is_answered_with_its_outcome() {
        let commanded = Arc::new(Commanded { fleet: fleet(), commands: Mutex::default() });
        let (status, refused) = send(&commanded, "POST", "/api/v1/process/reload", true).await;
        assert_eq!((status, &refused["error"]), (422, &json!("a.toml: bad")));
        let (status, upgraded) = send(&commanded, "POST", "/api/v1/process/upgrade", true).await;
        assert_eq!((status, upgraded), (200, json!({ "result": "serving", "pid": 8, "error": null })));
        let (status, draining) = send(&commanded, "POST", "/api/v1/process/drain", true).await;
        assert_eq!((status, &draining["pid"]), (202, &json!(7)));
        assert_eq!(*commanded.commands.lock(), ["reload", "upgrade", "drain"]);
    }

    #[tokio::test]
    async fn commands_are_posts() {
        let commanded = Arc::new(Commanded { fleet: fleet(), commands: Mutex::default() });
        for command in ["reload", "upgrade", "drain"] {
            assert_eq!(send(&commanded, "GET", &format!("/api/v1/process/{command}"), true).await.0, 405);
        }
        assert_eq!(*commanded.commands.lock(), [""; 0]);
    }
}
