//! The live page over services without sockets and timers.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use http_body_util::BodyExt as _;
use plimsoll_admin::parts::{MAX_SAMPLES, MAX_VIEWERS};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::ServiceExt as _;

use super::*;
use crate::config::Config;
use crate::hosted::{Beside, Hosted};
use crate::limits::{Change as LimitChange, Override};
use crate::message::{FromOwner, Hello, Report, ReportEntry, ToTask};
use crate::name::{Kind, Name};
use crate::ownership::Owners;
use crate::service::{Callers, MAX_QUEUE, Service, StreamId};

const EPOCH: u64 = 7;
const CPU: u64 = 1_000_000;
const FILE: &str = "[services.shop.customers]\nacme = { hard_limit = 1 }\ninitech = { hard_limit = 2, dry_run = true }\n\
                    [services.mail.groups.free]\nhard_limit = 4\n[services.mail.other_customers]\ngroup = \"free\"\n";

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

/// A page, and the time of its services: it stands still but for the calls of a test.
struct Site {
    page: Arc<LivePage>,
    ms: u64,
}

/// A task of a service.
struct Task {
    hosted: Arc<Hosted>,
    id: StreamId,
    queue: mpsc::Receiver<ToTask>,
    number: u32,
    acknowledged: u32,
}

impl Site {
    /// After the first five seconds: the server is sure of its tasks.
    fn new(text: &str) -> Self {
        let lifecycle = Lifecycle::serving();
        let config = Config::parse("quota.toml", text).unwrap();
        let hosted = config.services().iter().map(|(name, of)| {
            let mut service = Service::new(at(0), EPOCH, of.clone(), Callers::Tasks);
            let (queue, _kept) = mpsc::channel(MAX_QUEUE);
            let first = service.join(at(0), &hello(name, "first"), queue).unwrap();
            service.handle_timeout(at(6_000));
            service.leave(first);
            // Its lease ends.
            service.handle_timeout(at(70_000));
            assert_eq!(service.tasks(), 0);
            let hosted = Hosted::new(service, Beside::None);
            (name.clone(), Arc::new(hosted))
        });
        let services = Services::new(Owners::Alone { epoch: EPOCH }, lifecycle.watch());
        services.services.write().extend(hosted);
        Self { page: Arc::new(LivePage::new(Arc::new(services), lifecycle)), ms: 70_000 }
    }

    fn hosted(&self, service: &str) -> Arc<Hosted> {
        self.page.services.get(service).unwrap()
    }

    fn join(&self, service: &str, instance: &str) -> Task {
        let hosted = self.hosted(service);
        let (queue, messages) = mpsc::channel(MAX_QUEUE);
        let id = hosted.lock().join(at(self.ms), &hello(service, instance), queue).unwrap();
        Task { hosted, id, queue: messages, number: 0, acknowledged: 0 }
    }

    /// A second passes.
    fn tick(&mut self) {
        self.ms += 1_000;
        for hosted in self.page.services.all().values() {
            hosted.lock().handle_timeout(at(self.ms));
        }
        self.page.tick(self.ms as f64 / 1e3, at(self.ms));
    }

    fn live(&self, service: &str) -> Value {
        serde_json::to_value(self.page.live(Some(service)).unwrap()).unwrap()
    }

    /// The kinds, subjects and texts of all changes, the newest first.
    fn changes(&self) -> Vec<(String, String, String)> {
        let changes = self.page.state.lock().changes.latest();
        changes.into_iter().map(|of| (of.kind.to_owned(), of.subject, of.text)).collect()
    }

    async fn get(&self, path: &str) -> Response {
        let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
        router(Arc::clone(&self.page)).oneshot(request).await.unwrap()
    }
}

impl Task {
    /// Reports customers with their numbers, names and demands. Names are for the first mention.
    fn report(&mut self, now: u64, entries: Vec<ReportEntry>, groups: Vec<ReportEntry>) {
        while let Ok(message) = self.queue.try_recv() {
            if let Some(FromOwner::Assignment(assignment)) = message.message {
                self.acknowledged = assignment.number;
            }
        }
        self.number += 1;
        let (number, acknowledged) = (self.number, self.acknowledged);
        let dropped = Vec::new();
        let report = Report { epoch: EPOCH, number, acknowledged, entries, groups, dropped, overloaded: None };
        self.hosted.lock().report(at(now), self.id, &report).unwrap();
    }
}

fn hello(service: &str, instance: &str) -> Hello {
    Hello {
        service: service.to_owned(),
        instance: instance.to_owned(),
        cpus: 1_000.0,
        speed: 1.0,
        tasks: None,
        epoch: 0,
        holds: Vec::new(),
        groups: Vec::new(),
    }
}

/// Demand of a customer for critical requests.
fn entry(id: u32, name: Option<&[u8]>, demand: u64) -> ReportEntry {
    let name = name.map(<[u8]>::to_vec);
    ReportEntry { id, name, demand: vec![0, demand, 0, 0], cost: 1_000, used: demand / 2, ..ReportEntry::default() }
}

/// The events in the next part of a stream, by name.
async fn events(response: &mut Response) -> Vec<(String, Value)> {
    let part = response.body_mut().frame().await.expect("it goes on").unwrap().into_data().unwrap();
    let text = String::from_utf8(part.to_vec()).unwrap();
    let event = |event: &str| {
        let (name, data) = event.strip_prefix("event: ")?.split_once("\ndata: ").expect("one line of data");
        Some((name.to_owned(), serde_json::from_str(data).unwrap()))
    };
    text.split_terminator("\n\n").filter_map(event).collect()
}

fn told(kind: &str, subject: &str, text: &str) -> (String, String, String) {
    (kind.to_owned(), subject.to_owned(), text.to_owned())
}

#[tokio::test]
async fn customers_have_their_limits_demand_use_and_cut() {
    let mut site = Site::new(FILE);
    let mut task = site.join("shop", "a");
    let entries =
        vec![entry(1, Some(b"acme"), 4 * CPU), entry(2, Some(b"initech"), CPU), entry(3, Some(b"other"), CPU)];
    task.report(site.ms, entries, Vec::new());
    site.tick();
    let live = site.live("shop");
    assert_eq!((&live["process"]["kind"], &live["process"]["state"]), (&json!("quota"), &json!("ready")));
    let service = &live["service"];
    assert_eq!((&service["name"], &service["unit"], &service["tasks"]), (&json!("shop"), &json!("cpus"), &json!(1)));
    assert_eq!((&service["customers_limited"], &service["customers_cut"]), (&json!(2), &json!(1)));
    assert_eq!(service["is_unsure"], json!(false));
    let [acme, one, other] = &service["customers"].as_array().unwrap()[..] else { panic!("{service:#}") };
    // Demands are rounded down, by less than a thousandth.
    let near = |value: &Value, expected: f64| (value.as_f64().unwrap() / expected - 1.0).abs() < 1e-3;
    assert!(near(&acme["demand"], 4.0) && near(&acme["used"], 2.0) && near(&acme["granted"], 0.98), "{acme}");
    assert!((&acme["limit"], &acme["soft_limit"]) == (&json!(1.0), &json!(1.0)), "{acme}");
    assert_eq!((&acme["name"], &acme["kind"], &acme["tasks"]), (&json!("acme"), &json!("customer"), &json!(1)));
    assert!(acme["cut"] == "critical" && near(&acme["cut_admitted"], 0.245), "{acme}");
    assert!(one["name"] == "initech" && one["cut"].is_null() && one["is_dry_run"] == true, "{one}");
    assert!(other["name"] == "other" && other["limit"].is_null(), "{other}");
    let sample = &live["sample"];
    assert!(near(&sample["demand"], 5.0) && near(&sample["used"], 2.5), "without the customer without a limit");
    assert_eq!((&sample["limit"], &sample["customers_cut"]), (&json!(3.0), &json!(1.0)));
    // The service with a cut comes first.
    let names: Vec<_> = live["services"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["shop", "mail"]);
    assert_eq!(site.page.live(None).unwrap().service.unwrap().name, "shop");
}

#[tokio::test]
async fn service_with_limits_of_groups_alone_has_their_sums() {
    let mut site = Site::new(FILE);
    let mut task = site.join("mail", "a");
    task.report(site.ms, vec![entry(1, Some(b"acme"), 6 * CPU)], vec![entry(2, Some(b"free"), 6 * CPU)]);
    site.tick();
    let live = site.live("mail");
    let [group, customer] = &live["service"]["customers"].as_array().unwrap()[..] else { panic!("{live:#}") };
    assert!(group["kind"] == "group" && group["name"] == "free" && group["limit"] == 4.0, "{group}");
    assert!(customer["kind"] == "customer" && customer["limit"].is_null(), "{customer}");
    assert_eq!(live["sample"]["limit"], json!(4.0));
    assert!(live["sample"]["demand"].as_f64().unwrap() > 5.9, "once, and not twice");
}

#[tokio::test]
async fn cut_that_comes_and_goes_is_told_once() {
    let mut site = Site::new(FILE);
    let mut task = site.join("shop", "a");
    task.report(site.ms, vec![entry(1, Some(b"acme"), CPU / 2)], Vec::new());
    site.tick();
    assert_eq!(site.changes(), [], "the state at the start is no change");
    for second in 0..10 {
        let demand = if second % 2 == 0 { 3 * CPU } else { CPU / 2 };
        task.report(site.ms, vec![entry(1, None, demand)], Vec::new());
        site.tick();
    }
    let began = told("cut", "acme", "cut: demand 3, limit 1 CPUs");
    assert_eq!(site.changes(), std::slice::from_ref(&began));
    // The last cut was a second ago.
    for _ in 0..9 {
        assert_eq!(site.changes().len(), 1);
        task.report(site.ms, Vec::new(), Vec::new());
        site.tick();
    }
    assert_eq!(site.changes(), [told("cut", "acme", "not cut any more"), began]);
}

#[tokio::test]
async fn many_customers_that_are_cut_together_are_one_change() {
    let mut site = Site::new("[services.shop.other_customers]\nhard_limit = 1\n");
    let mut task = site.join("shop", "a");
    site.tick();
    let entries = (0..20_u32).map(|id| entry(id, Some(format!("c{id}").as_bytes()), 2 * CPU)).collect();
    task.report(site.ms, entries, Vec::new());
    site.tick();
    assert_eq!(site.changes(), [told("cut", "20 customers", "cut")]);
}

#[tokio::test]
async fn number_of_another_customer_carries_no_mark() {
    let mut site = Site::new("[services.shop.other_customers]\nhard_limit = 1\n");
    site.tick();
    let mut task = site.join("shop", "a");
    task.report(site.ms, vec![entry(1, Some(b"acme"), 2 * CPU)], Vec::new());
    site.tick();
    assert!(site.page.state.lock().tracks["shop"].is_cutting());
    // The task leaves, and its customer is forgotten with its lease.
    let hosted = site.hosted("shop");
    hosted.lock().leave(task.id);
    site.ms += 70_000;
    site.tick();
    assert!(hosted.lock().named(&Name::customer(b"acme")).is_none());
    assert!(!site.page.state.lock().tracks["shop"].is_cutting());
    assert!(!site.changes().iter().any(|(.., text)| text == "not cut any more"), "{:?}", site.changes());
}

#[tokio::test]
async fn tasks_of_a_roll_out_are_one_change_with_their_number() {
    let mut site = Site::new(FILE);
    site.tick();
    let mut tasks = Vec::new();
    for round in 0..3 {
        tasks.extend((0..4).map(|number| site.join("shop", &format!("{round}-{number}"))));
        site.tick();
    }
    assert_eq!(site.changes(), [told("tasks", "12 tasks", "joined")]);
    for task in &tasks {
        task.hosted.lock().leave(task.id);
    }
    site.ms += 70_000;
    site.tick();
    assert_eq!(site.changes()[0], told("tasks", "12 tasks", "lost"));
    let at = site.page.state.lock().changes.latest()[0].at;
    assert_eq!(at, site.ms as f64 / 1e3);
}

#[tokio::test]
async fn limits_of_operators_and_of_the_file_are_told() {
    let mut site = Site::new(FILE);
    site.tick();
    let hosted = site.hosted("shop");
    let acme = Name::new(Kind::Customer, b"acme");
    let to = Override { limit: 5 * CPU / 2, until: at(site.ms) + Duration::from_secs(7_200) };
    hosted.lock().change(at(site.ms), LimitChange::Override(acme.clone(), Some(to)));
    site.tick();
    let began = told("override", "acme", "limit 2.5 CPUs for 2h");
    assert_eq!(site.changes(), std::slice::from_ref(&began));
    assert_eq!(site.live("shop")["service"]["customers"][0]["limit"], json!(2.5));
    hosted.lock().change(at(site.ms), LimitChange::Override(acme, None));
    site.tick();
    let ended = told("override", "acme", "limit of the operator ended");
    assert_eq!(site.changes(), [ended.clone(), began.clone()]);
    let same = hosted.lock().config().clone();
    hosted.lock().change(at(site.ms), LimitChange::Config(Box::new(same.clone())));
    site.tick();
    assert_eq!(site.changes().len(), 2, "the same limits again are no change");
    let mut other = same;
    other.customers.get_mut("acme").unwrap().hard_limit = Some(3.0);
    hosted.lock().change(at(site.ms), LimitChange::Config(Box::new(other)));
    site.tick();
    assert_eq!(site.changes(), [told("reload", "limits of the file", "in force"), ended, began]);
}

#[tokio::test]
async fn server_that_becomes_sure_says_so() {
    let mut site = Site::new(FILE);
    let config = site.hosted("shop").lock().config().clone();
    *site.hosted("shop").lock() = Service::new(at(site.ms), EPOCH, config, Callers::Tasks);
    let _task = site.join("shop", "a");
    site.tick();
    assert_eq!(site.live("shop")["service"]["is_unsure"], json!(true));
    site.ms += 5_000;
    site.tick();
    assert_eq!(site.live("shop")["service"]["is_unsure"], json!(false));
    assert_eq!(site.changes(), [told("process", "server", "sure of all rates")]);
}

#[tokio::test]
async fn history_keeps_ten_minutes_without_a_viewer() {
    let mut site = Site::new("[services.shop.customers]\nacme = { hard_limit = 1 }\n");
    for _ in 0..=MAX_SAMPLES + 5 {
        site.tick();
    }
    let first = site.page.first(Some("shop")).unwrap();
    let text = String::from_utf8(first.to_vec()).unwrap();
    let history = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let history: Value = serde_json::from_str(history).unwrap();
    assert_eq!((&history["service"], &history["samples"]), (&json!("shop"), &json!(600)));
    assert_eq!(history["begin"].as_f64(), Some(site.ms as f64 / 1e3 - 599.0));
    let names: Vec<&String> = history["series"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["customers_cut", "demand", "limit", "used"]);
    assert_eq!(history["series"]["limit"], json!(vec![1.0; 600]));
}

#[tokio::test]
async fn history_of_a_page_before_the_first_second_is_empty() {
    let site = Site::new(FILE);
    let mut response = site.get("/api/v1/live/stream?service=shop").await;
    let [(name, history), (_, live)] = &events(&mut response).await[..] else { panic!("two events") };
    assert_eq!((name.as_str(), &history["samples"], &history["begin"]), ("history", &json!(0), &live["at"]));
    assert_eq!((&history["series"]["limit"], &live["sample"]), (&json!([]), &Value::Null));
}

#[tokio::test]
async fn stream_begins_with_history_goes_on_and_ends_with_its_service() {
    let mut site = Site::new(FILE);
    site.tick();
    let mut response = site.get("/api/v1/live/stream?service=shop").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let names: Vec<String> = events(&mut response).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["history", "live"]);
    site.tick();
    let [(name, live)] = &events(&mut response).await[..] else { panic!("one event") };
    assert_eq!((name.as_str(), live["at"].as_f64()), ("live", Some(site.ms as f64 / 1e3)));
    assert_eq!((&live["service"]["name"], &live["sample"]["at"]), (&json!("shop"), &live["at"]));
    site.page.services.services.write().remove("shop");
    site.tick();
    assert!(response.body_mut().frame().await.is_none(), "a reload removed the service");
    assert!(!site.page.state.lock().tracks.contains_key("shop"));
}

#[tokio::test]
async fn viewers_are_bounded_and_make_room_when_they_leave() {
    let site = Site::new(FILE);
    let mut open = Vec::new();
    for _ in 0..MAX_VIEWERS {
        let response = site.get("/api/v1/live/stream").await;
        assert_eq!(response.status(), 200);
        open.push(response);
    }
    assert_eq!(site.get("/api/v1/live/stream").await.status(), 503);
    open.pop();
    assert_eq!(site.get("/api/v1/live/stream").await.status(), 200);
}

#[tokio::test]
async fn unknown_services_and_parameters_are_errors_that_help() {
    let site = Site::new(FILE);
    for (path, status, help) in [
        ("/api/v1/live?service=none", 404, "GET /api/v1/quota lists them"),
        ("/api/v1/live/stream?service=none", 404, "GET /api/v1/quota lists them"),
        ("/api/v1/live?cluster=web", 400, "?service=shop"),
    ] {
        let response = site.get(path).await;
        assert_eq!(response.status(), status, "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains(help), "{path}: {text}");
    }
}

/// Ten thousand customers with the longest names in JSON. They come in several seconds, so that changes have
/// some of the names too.
#[tokio::test]
async fn event_has_twenty_kilobytes_at_most() {
    for (name, listed) in [(&[0xff; 250][..], 5..20), (&b"a-customer-with-a-long-name-of-50-characters"[..], 45..51)] {
        let mut site = Site::new("[services.shop.other_customers]\nhard_limit = 1\n");
        site.tick();
        let (mut tasks, mut number) = (Vec::new(), 0_u32);
        for instance in 0..4 {
            tasks.push(site.join("shop", &format!("task-{instance}")));
            for some in [1, 1, 1, 2_497] {
                let entries = (number..number + some).map(|id| {
                    let name = [format!("{id:06}").as_bytes(), name].concat();
                    entry(id, Some(&name), 2 * CPU + u64::from(id))
                });
                tasks[instance].report(site.ms, entries.collect(), Vec::new());
                number += some;
                site.tick();
            }
        }
        let live = site.page.live(Some("shop")).unwrap();
        let service = live.service.as_ref().unwrap();
        assert_eq!((service.customers_cut, service.customers.len() + service.customers_left_off), (10_000, 10_000));
        assert!(listed.contains(&service.customers.len()), "{}", service.customers.len());
        assert_eq!(live.changes.len(), 17, "12 customers, 4 times many, and the tasks");
        let excess: Vec<f64> = service.customers.iter().map(|of| of.demand - of.limit.unwrap()).collect();
        assert!(excess.is_sorted_by(|one, next| one >= next), "{excess:?}");
        let bytes = event("live", &live).len();
        assert!(bytes <= 20 << 10, "{bytes} bytes");
    }
}
