//! One request: its route, its way to a backend, and the answer's way back.

use std::sync::Arc;

use http::header::{EXPECT, HOST, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use plimsoll::address::Address;
use plimsoll::client::{self, Informational, Tracer, Upgraded};
use plimsoll_core::pick::HashKey;
use plimsoll_core::slots::Holder;
use plimsoll_core::{Criticality, Rejection};
use plimsoll_http1::Fault;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::hop;
use plimsoll_wire::metadata::Metadata;
use plimsoll_wire::shed::Shed;

use crate::access_log::Entry;
use crate::config::Trouble;
use crate::connection::{ActiveRequest, Connection};
use crate::counts::Label as _;
use crate::degrade::{Asker, Degrade, Fallback, Substitute, trouble};
use crate::explain::{BackendAnswer, Case, End, HashFacts, Kind, Reason, X_REQUEST_ID};
use crate::reason::Refusal;
use crate::request::answer;
use crate::request::check::check;
use crate::request::response_body::ResponseBody;
use crate::request::upgrade::Upgrade;
use crate::request_body::{RequestBody, RequestBodyError};
use crate::route::customer::Customer;
use crate::route::destination::{Decision, Destination, Target};
use crate::route::header_rules::HeaderRules;
use crate::route::host::host;
use crate::route::keys::Keyed;
use crate::route::redirect::{self, Redirect};

/// The reason of an answer that breaks the protocol; the same as the library's.
const BAD_RESPONSE: &str = "bad-response";

/// The end of a request, as its connection sees it.
#[expect(clippy::large_enum_variant, reason = "the large one is nearly every one")]
pub(crate) enum Outcome {
    /// An answer, by a backend or by the proxy.
    Answer(Response<ResponseBody>),
    /// The backend speaks the protocol that the client asked for, from here on.
    Switched(Box<Switched>),
    /// None: the request is dropped.
    Dropped,
}

/// The parts of a connection that goes on with another protocol.
pub(crate) struct Switched {
    /// The head of the answer that said so.
    pub(crate) response: Response<()>,
    /// The backend's side.
    pub(crate) backend: Upgraded,
    /// The request, which lasts as long as the protocol is spoken.
    pub(crate) active: ActiveRequest,
}

/// Features of a client beyond plain responses.
#[derive(Default)]
pub(crate) struct ClientFeatures {
    /// It would like another protocol.
    pub(crate) upgrade: Option<Upgrade>,
    /// It understands interim responses.
    pub(crate) informational: Option<Informational>,
}

/// Answers a request, by a backend or here.
pub(crate) async fn forward(
    connection: &Connection,
    mut request: Request<RequestBody>,
    beyond: ClientFeatures,
    mut active: ActiveRequest,
) -> Outcome {
    active.trace(&mut request);
    request.body_mut().count_in(active.bytes_in());
    let asks_for_tunnel = beyond.upgrade.is_some() && request.version() == Version::HTTP_2;
    // To an extended CONNECT any success says that the tunnel is open, and errors of gRPC are
    // successes of HTTP.
    let is_grpc = grpc::is_grpc(request.headers()) && !asks_for_tunnel;
    let is_head = request.method() == Method::HEAD;
    let mut case = Case::of(&request);
    let (found, customer) = admit(connection, &request, active.entry.is_some());
    if let Some(entry) = &mut active.entry {
        entry.set_customer(customer.as_deref());
    }
    let destination = match found {
        Ok(destination) => destination,
        Err(refusal) => {
            let answer = refuse(connection, refusal, is_grpc, &mut active, &mut case);
            return finish(answer, is_head, active, &case);
        }
    };
    let target = match &*destination {
        Destination::BlackHole => {
            end_by_route(connection, Refusal::of(Rejection::BlackHole), None, &mut active, &mut case);
            return Outcome::Dropped;
        }
        Destination::Answer(fixed, rules) => {
            let answer = fixed.of_route(is_grpc).map(ResponseBody::local);
            let opens_tunnel = asks_for_tunnel && answer.status().is_success();
            let answer = if opens_tunnel { answer::for_no_switch() } else { answer };
            Err((by_route(connection, answer, &mut active, &mut case), rules.as_ref()))
        }
        Destination::Redirect(redirect, rules) => {
            let answer = match redirected(connection, redirect, &request, is_grpc) {
                Ok(answer) => by_route(connection, answer, &mut active, &mut case),
                Err(refusal) => refuse(connection, refusal, is_grpc, &mut active, &mut case),
            };
            Err((answer, rules.as_ref()))
        }
        Destination::Cluster(target) => Ok(target),
        Destination::Split(sides) => {
            let network = connection.client_network(request.headers());
            Ok(sides.choose(&request, customer.as_deref(), &network))
        }
    };
    let is_tls = connection.peer.tls.is_some();
    let answer = match target {
        Err((mut answer, rules)) => {
            change(&mut answer, rules);
            answer
        }
        Ok(target) => {
            let (end, keyed) =
                by_cluster(connection, target, customer, request, beyond, is_grpc, &mut active, &mut case).await;
            match end {
                ByCluster::Answer(mut answer) => {
                    change(&mut answer, target.response_rules());
                    // A rule must not make a client's cookie one that caches store.
                    if !is_grpc {
                        target.mark_response(keyed, is_tls, &mut answer);
                    }
                    answer
                }
                ByCluster::Switched(switched) => {
                    let (mut response, backend) = *switched;
                    change(&mut response, target.response_rules());
                    target.mark_response(keyed, is_tls, &mut response);
                    // The tunnel is no request, and may last for hours.
                    (active.permit, active.fact) = (None, None);
                    return Outcome::Switched(Box::new(Switched { response, backend, active }));
                }
            }
        }
    };
    finish(answer, is_head, active, &case)
}

/// Logs an answer, and has its body end the request.
fn finish(answer: Response<ResponseBody>, is_head: bool, mut active: ActiveRequest, case: &Case) -> Outcome {
    if let Some(entry) = &mut active.entry {
        entry.on_answer(answer.status(), answer.headers(), case.own_id());
    }
    let answer = if is_head { answer::without_body(answer) } else { answer };
    Outcome::Answer(answer.map(|body| body.holding(active)))
}

/// Gives a response the fields of its route.
fn change<B>(response: &mut Response<B>, rules: Option<&HeaderRules>) {
    if let Some(rules) = rules {
        rules.apply(response.headers_mut());
    }
}

/// The answer of a route without a backend.
fn by_route(
    connection: &Connection,
    answer: Response<ResponseBody>,
    active: &mut ActiveRequest,
    case: &mut Case,
) -> Response<ResponseBody> {
    end_by_route(connection, Refusal::of(Rejection::RouteAnswer), Some(answer.status()), active, case);
    answer
}

/// The redirect of a request, which its client may have sent to a trusted proxy in front.
fn redirected(
    connection: &Connection,
    redirect: &Redirect,
    request: &Request<RequestBody>,
    is_grpc: bool,
) -> Result<Response<ResponseBody>, Refusal> {
    let host = host(request).ok_or(Refusal::Malformed(Fault::Host))?;
    let scheme = redirect::scheme(&connection.peer, &connection.marks, request.headers());
    redirect.answer(request.uri(), scheme, host, is_grpc).map(|answer| answer.map(ResponseBody::local))
}

/// The end of a request whose route leads to a cluster.
#[expect(clippy::large_enum_variant, reason = "the large one is nearly every one")]
enum ByCluster {
    /// An answer, by a backend or by the proxy.
    Answer(Response<ResponseBody>),
    /// The backend speaks another protocol; the head that says so, and its side.
    Switched(Box<(Response<()>, Upgraded)>),
}

/// Sends a request to a backend, or gives the degraded answer. With the key of the request, if a
/// cookie may be due.
#[expect(clippy::too_many_arguments, reason = "facts about one request")]
async fn by_cluster(
    connection: &Connection,
    target: &Arc<Target>,
    customer: Option<Customer>,
    mut request: Request<RequestBody>,
    beyond: ClientFeatures,
    is_grpc: bool,
    active: &mut ActiveRequest,
    case: &mut Case,
) -> (ByCluster, Option<Box<Keyed>>) {
    let ClientFeatures { upgrade, informational } = beyond;
    let asks_to_switch = upgrade.is_some();
    // On HTTP/1 a request may be served without its upgrade (RFC 9110, 7.8). An extended CONNECT
    // was made a GET, which its client did not send.
    if asks_to_switch && request.version() == Version::HTTP_2 && !target.can_upgrade() {
        let answer = refuse(connection, Refusal::of(Rejection::NoUpgrade), is_grpc, active, case);
        return (ByCluster::Answer(answer), None);
    }
    let degrade = target.degrade.as_ref().filter(|_| !is_grpc && !asks_to_switch);
    let has_body = !request.body().is_end_stream();
    // By the request as it came: a client cannot hide its customer by naming that field in
    // `Connection`.
    let Keys { keyed, of_copy, client } = Keys::of(connection, target, &request, customer.as_deref());
    let decided = let_in(target, customer.as_deref(), &mut request, is_grpc, active, case).await;
    // By the request as a backend gets to see it: on nothing else does its answer depend.
    if decided.is_ok() || degrade.is_some() {
        hop::strip_request(request.headers_mut());
        if let Some(changes) = &target.changes {
            changes.request_fields(&mut request);
        }
    }
    let fallback = degrade.map(|degrade| fallback(degrade, connection, customer.as_deref(), &request, has_body));
    case.may_degrade = fallback.is_some();
    let fallback = fallback.as_ref();
    let (metadata, mark) = match decided {
        Ok(decided) => decided,
        Err(refusal) => {
            let answer = refuse(connection, refusal, is_grpc, active, case);
            let trouble = if let Refusal::Rejected(shed) = refusal { shed.reason.row().degraded } else { None };
            return (ByCluster::Answer(degraded(answer, trouble, fallback, connection, active)), None);
        }
    };
    if let Some(changes) = &target.changes
        && let Err(refusal) = changes.path(&mut request)
    {
        if let Some(permit) = &mut active.permit {
            permit.nothing_sent();
        }
        return (ByCluster::Answer(refuse(connection, refusal, is_grpc, active, case)), None);
    }
    prepare(connection, target, &mut request, upgrade, mark);
    let http2 = request.version() == Version::HTTP_2;
    let asks_for_tunnel = asks_to_switch && http2;
    let is_get = request.method() == Method::GET;
    if let Some(mirror) = &target.mirror {
        mirror.copy(&mut request, asks_to_switch, (client, of_copy));
    }
    let failure = request.body().failure();
    if let Some(permit) = &mut active.permit {
        permit.sent();
    }
    let tracer = active.trace.clone().map(|trace| trace as Arc<dyn Tracer>);
    if connection.context.recorder.is_on() {
        let facts = |keyed| HashFacts { key: target.named_key(keyed), cluster: target.live_cluster().clone() };
        case.hash = keyed.as_deref().map(facts);
    }
    let client = (client, keyed.as_ref().and_then(|keyed| keyed.key));
    let compared = target.side.as_ref().map(|side| {
        let metadata = metadata.unwrap_or_else(|| Metadata::read(request.headers()));
        side.begin(metadata.timeout)
    });
    let sent = target.send(request, informational, metadata, client, tracer, &mut case.failed).await;
    if let Some(compared) = compared {
        let is_clients_fault = failure.as_ref().is_some_and(|failure| failure.get().is_some());
        active.fact = compared.end(&sent, is_clients_fault);
    }
    let answer = match sent {
        Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            match switched(connection, response, asks_to_switch, is_grpc, active, case) {
                end @ ByCluster::Switched(_) => return (end, keyed),
                ByCluster::Answer(answer) => answer,
            }
        }
        // To an extended CONNECT any success says that the tunnel is open.
        Ok(response) if asks_for_tunnel && response.status().is_success() => {
            no_tunnel(connection, &response, active, case)
        }
        Ok(response) => {
            remember(connection, &response, is_grpc, case);
            let answer = pass_on(connection, response, is_grpc && http2, active);
            let answer = match fallback {
                Some(fallback) => proper(answer, is_get, fallback, connection, active),
                None => answer,
            };
            // The cookie comes after the answer was kept for other clients.
            return (ByCluster::Answer(answer), keyed);
        }
        Err(error) => {
            if let (Some(permit), true) = (&mut active.permit, error.nothing_sent()) {
                permit.nothing_sent();
            }
            match failure.and_then(|failure| refusal_of(*failure.get()?)) {
                Some(refusal) => refuse(connection, refusal, is_grpc, active, case),
                None => {
                    let answer = fail(connection, target, &error, is_grpc, active, case);
                    degraded(answer, trouble::of_error(&error), fallback, connection, active)
                }
            }
        }
    };
    (ByCluster::Answer(answer), None)
}

/// The keys of a request as it came.
struct Keys {
    /// That of its backend, if its cluster has the policy `hash`.
    keyed: Option<Box<Keyed>>,
    /// That of its copy for a mirror.
    of_copy: Option<HashKey>,
    /// The holder of its slots.
    client: Holder,
}

impl Keys {
    fn of(connection: &Connection, target: &Target, request: &Request<RequestBody>, customer: Option<&[u8]>) -> Self {
        let address = || connection.client_address(request.headers());
        let keyed = target.keyed(request, address);
        let of_copy = target.mirror.as_ref().and_then(|mirror| {
            let key = mirror.key(request, address);
            key.or_else(|| keyed.as_ref()?.key)
        });
        let holder = target.customer_holder(customer);
        let client = holder.unwrap_or_else(|| connection.holder(request.headers()));
        Self { keyed, of_copy, client }
    }
}

/// The degraded answer in place of an error, if the route has one for this trouble.
fn degraded(
    answer: Response<ResponseBody>,
    trouble: Option<Trouble>,
    fallback: Option<&Fallback<'_>>,
    connection: &Connection,
    active: &mut ActiveRequest,
) -> Response<ResponseBody> {
    match (trouble, fallback) {
        (Some(trouble), Some(fallback)) => in_place_of(answer, trouble, fallback, connection, active),
        _ => answer,
    }
}

/// The head that announces another protocol and the backend's side, or the answer to a client that
/// had not asked for one.
fn switched(
    connection: &Connection,
    response: Response<client::ResponseBody>,
    was_asked_for: bool,
    is_grpc: bool,
    active: &mut ActiveRequest,
    case: &mut Case,
) -> ByCluster {
    if let Some(entry) = &mut active.entry {
        log_head(entry, &response);
    }
    let address = response.body().backend_address();
    match switch(connection, response, was_asked_for) {
        Some(switched) => ByCluster::Switched(Box::new(switched)),
        None => {
            let end = (Kind::Failed, Reason::of(BAD_RESPONSE), Some(address));
            ByCluster::Answer(unserved(connection, case, end, answer::for_switch(is_grpc)))
        }
    }
}

/// The answer to an extended CONNECT that the backend took for a request.
fn no_tunnel(
    connection: &Connection,
    response: &Response<client::ResponseBody>,
    active: &mut ActiveRequest,
    case: &mut Case,
) -> Response<ResponseBody> {
    if let Some(entry) = &mut active.entry {
        log_head(entry, response);
        entry.reason = Some(BAD_RESPONSE);
    }
    let end = (Kind::Failed, Reason::of(BAD_RESPONSE), Some(response.body().backend_address()));
    unserved(connection, case, end, answer::for_no_switch())
}

/// The answers in place of an error. Only the fields for the backend are left in the request.
fn fallback<'r>(
    degrade: &'r Degrade,
    connection: &Connection,
    customer: Option<&[u8]>,
    request: &Request<RequestBody>,
    has_body: bool,
) -> Fallback<'r> {
    let asker = Asker {
        is_tls: connection.peer.tls.is_some(),
        host: host(request).unwrap_or_default(),
        client_names: connection.peer.client_names(),
        customer,
    };
    degrade.fallback(request, has_body, asker)
}

/// The backend's answer, or another in its place if it is an error; one that may be of use later is
/// kept as it passes.
fn proper(
    answer: Response<ResponseBody>,
    is_get: bool,
    fallback: &Fallback<'_>,
    connection: &Connection,
    active: &mut ActiveRequest,
) -> Response<ResponseBody> {
    if let Some(trouble) = trouble::of_answer(answer.status(), answer.headers()) {
        return in_place_of(answer, trouble, fallback, connection, active);
    }
    let length = answer.body().size_hint().exact();
    // With little memory left, nothing more is stored.
    let may_be_kept = is_get && !connection.context.pressure.is_lean();
    match fallback.see(may_be_kept, &answer, length) {
        Some(copy) => answer.map(|body| body.copied(copy)),
        None => answer,
    }
}

/// The route's answer in place of `error`, or `error` itself, if the route has none.
fn in_place_of(
    error: Response<ResponseBody>,
    trouble: Trouble,
    fallback: &Fallback<'_>,
    connection: &Connection,
    active: &mut ActiveRequest,
) -> Response<ResponseBody> {
    let Some((answer, kind)) = fallback.instead(trouble, &error) else { return error };
    let mut answer = answer.map(ResponseBody::local);
    // By which one can ask why.
    if let Some(id) = error.headers().get(X_REQUEST_ID) {
        answer.headers_mut().insert(X_REQUEST_ID, id.clone());
    }
    connection.context.counts.degraded.count(Substitute(kind, trouble));
    if let Some(entry) = &mut active.entry {
        entry.degraded = Some(kind.name());
        entry.reason.get_or_insert(trouble.name());
    }
    // Nothing more is asked of the backend.
    active.permit = None;
    error.into_body().discard();
    answer
}

fn count(connection: &Connection, refusal: Refusal, active: &mut ActiveRequest) {
    connection.context.counts.refusals.count(refusal);
    if let Some(entry) = &mut active.entry {
        entry.reason = Some(refusal.name());
    }
}

/// A route without a backend has ended a request.
fn end_by_route(
    connection: &Connection,
    refusal: Refusal,
    status: Option<StatusCode>,
    active: &mut ActiveRequest,
    case: &mut Case,
) {
    count(connection, refusal, active);
    connection.context.recorder.ended_by_route(connection.source(), case, status, refusal.name());
}

fn refuse(
    connection: &Connection,
    refusal: Refusal,
    is_grpc: bool,
    active: &mut ActiveRequest,
    case: &mut Case,
) -> Response<ResponseBody> {
    count(connection, refusal, active);
    let trouble = match refusal {
        Refusal::Rejected(shed) if case.may_degrade => shed.reason.row().degraded,
        _ => None,
    };
    let reason = Reason::of(refusal.name()).degraded_as(trouble);
    unserved(connection, case, (Kind::Refused, reason, None), answer::for_refusal(refusal, is_grpc))
}

/// The response to a request that was not served. It is recorded, and names the id to ask about.
fn unserved(
    connection: &Connection,
    case: &mut Case,
    (kind, reason, backend): (Kind, Reason, Option<Address>),
    mut answer: Response<ResponseBody>,
) -> Response<ResponseBody> {
    let end = End { kind, status: Some(answer.status()), reason: Some(reason), backend };
    connection.context.recorder.unserved(connection.source(), case, end, answer.headers_mut());
    answer
}

/// Where the request is to go, before anything of its body is read; and its customer, which is
/// looked for in each request that is logged.
fn admit(
    connection: &Connection,
    request: &Request<RequestBody>,
    is_logged: bool,
) -> (Result<Arc<Destination>, Refusal>, Option<Customer>) {
    match screen(connection, request) {
        Ok(host) => connection.context.routes.load().find(request, &connection.customer_facts(request.headers(), host)),
        Err(refusal) => (Err(refusal), if is_logged { connection.customer(request) } else { None }),
    }
}

/// Refuses requests that no route takes. Returns the host of the others.
fn screen<'r>(connection: &Connection, request: &'r Request<RequestBody>) -> Result<&'r str, Refusal> {
    if connection.context.pressure.refuses() {
        return Err(Refusal::of(Rejection::Memory));
    }
    if request.method() == Method::CONNECT {
        return Err(Refusal::of(Rejection::Connect));
    }
    if request.method() == Method::TRACE {
        return Err(Refusal::of(Rejection::Trace));
    }
    if connection.limits.max_body.is_some_and(|most| request.body().size_hint().lower() > most) {
        return Err(Refusal::of(Rejection::BodyTooLarge));
    }
    if request.version() == Version::HTTP_2 {
        check(request, &connection.limits).map_err(Refusal::Malformed)?;
    }
    if connection.limits.forwarding.is_loop(request.headers()) {
        return Err(Refusal::of(Rejection::Loop));
    }
    host(request).ok_or(Refusal::Malformed(Fault::Host))
}

/// Asks the limit on the customer's requests, and the gate before the process behind the cluster,
/// before any of the body is read. Then waits
/// for the first part of the body. Returns the request's metadata, where anything depends on it,
/// and the criticality to be written on it.
async fn let_in(
    target: &Arc<Target>,
    customer: Option<&[u8]>,
    request: &mut Request<RequestBody>,
    is_grpc: bool,
    active: &mut ActiveRequest,
    case: &mut Case,
) -> Result<(Option<Metadata>, Option<Criticality>), Refusal> {
    if let Some(entry) = &mut active.entry {
        entry.cluster = Some(Arc::clone(target.cluster()));
    }
    case.goes_to(target.route(), target.cluster(), customer);
    let Decision { permit, metadata, is_marked, class, said, over } = target.let_in(request, is_grpc, customer);
    (case.class, case.said, case.over) = (class, said, over);
    if let Some(entry) = &mut active.entry {
        let known = class.map(|class| class.criticality).or_else(|| metadata?.criticality);
        entry.criticality = Some(known.unwrap_or_else(|| target.criticality(request.headers())));
        entry.expected = said.map(|said| said.expected);
    }
    active.permit = permit?;
    // A client that waits for 100 (Continue) sends nothing before the backend was asked. On HTTP/2
    // the proxy sends it when it first polls the body (`request_body::interim`).
    let waits = request.version() != Version::HTTP_2 && request.headers().contains_key(EXPECT);
    if !request.body().is_end_stream() && !waits {
        request.body_mut().first_part().await.map_err(|_| Refusal::of(Rejection::SlowBody))?;
    }
    Ok((metadata, metadata.filter(|_| is_marked).and_then(|metadata| metadata.criticality)))
}

/// Makes the client's request one of the proxy's. Fields of the client's connection are gone by
/// now.
fn prepare(
    connection: &Connection,
    target: &Target,
    request: &mut Request<RequestBody>,
    upgrade: Option<Upgrade>,
    mark: Option<Criticality>,
) {
    if request.version() == Version::HTTP_2 {
        // The proxy sends 100 (Continue) itself (`request_body::interim`); the backend need not be
        // asked.
        request.headers_mut().remove(EXPECT);
    }
    connection.marks.request(&connection.limits.forwarding, request);
    target.prepare(request, &connection.peer, mark);
    if request.uri().authority().is_some() {
        // The backend gets the host that the request was routed by, whatever the field beside it
        // says.
        request.headers_mut().remove(HOST);
    }
    if let Some(upgrade) = upgrade {
        upgrade.ask(request.headers_mut());
    }
}

/// The refusal for a body that broke off; `None` if its client has left.
fn refusal_of(failure: RequestBodyError) -> Option<Refusal> {
    match failure {
        RequestBodyError::TooLong => Some(Refusal::of(Rejection::BodyTooLarge)),
        RequestBodyError::TooSlow => Some(Refusal::of(Rejection::SlowBody)),
        RequestBodyError::Malformed(Fault::CutOff) | RequestBodyError::CutOff => None,
        RequestBodyError::Malformed(fault) => Some(Refusal::Malformed(fault)),
    }
}

/// The head that announces the switch, and the backend's side; `None` if the client had not asked
/// for one.
fn switch(
    connection: &Connection,
    mut response: Response<client::ResponseBody>,
    was_asked_for: bool,
) -> Option<(Response<()>, Upgraded)> {
    let backend = Upgraded::take(&mut response).filter(|_| was_asked_for)?;
    let version = response.version();
    let headers = response.headers_mut();
    // Which protocol it is has to be said on the client's connection, too.
    let protocol = headers.remove(UPGRADE);
    hop::strip_response(headers);
    headers.extend(protocol.map(|protocol| (UPGRADE, protocol)));
    connection.limits.forwarding.mark_response(headers, version);
    Some((response.map(drop), backend))
}

/// Makes the backend's answer one of the proxy's. `is_call`: its client reads in trailers how it
/// ended.
fn pass_on(
    connection: &Connection,
    mut response: Response<client::ResponseBody>,
    is_call: bool,
    active: &mut ActiveRequest,
) -> Response<ResponseBody> {
    if let Some(entry) = &mut active.entry {
        log_head(entry, &response);
    }
    if let Some(permit) = &mut active.permit {
        permit.answered(&response);
    }
    let version = response.version();
    hop::strip_response(response.headers_mut());
    connection.limits.forwarding.mark_response(response.headers_mut(), version);
    response.map(if is_call { ResponseBody::backend_call } else { ResponseBody::backend })
}

fn fail(
    connection: &Connection,
    target: &Target,
    error: &client::Error,
    is_grpc: bool,
    active: &mut ActiveRequest,
    case: &mut Case,
) -> Response<ResponseBody> {
    tracing::debug!(cluster = &**target.cluster(), error = %error.in_full(), "request failed");
    let reason = Reason::of_error(error);
    if let Some(entry) = &mut active.entry {
        (entry.reason, entry.cause) = (Some(reason.word), reason.cause);
        entry.backend = error.backend_address();
        entry.attempts = error.attempts();
    }
    if let (Some(class), Some(said), Some(reason), true) =
        (case.class, case.said, error.shed_reason(), error.nothing_sent())
    {
        target.lost(class, said, reason);
    }
    let trouble = if case.may_degrade { trouble::of_error(error) } else { None };
    let end = (Kind::Failed, reason.degraded_as(trouble), error.backend_address());
    unserved(connection, case, end, answer::for_error(error, is_grpc))
}

/// Remembers a request that a backend has answered, if it is one of those that are.
fn remember(connection: &Connection, response: &Response<client::ResponseBody>, is_grpc: bool, case: &mut Case) {
    let (status, headers) = (response.status(), response.headers());
    // A backend that did not serve it may say why; for its quota, which is no failure, too.
    let shed = Shed::read(status, headers).and_then(|shed| shed.reason);
    let is_failure = || status.is_server_error() || is_grpc && Code::read(headers).is_some_and(Code::is_failure);
    let trouble = if case.may_degrade { trouble::of_answer(status, headers) } else { None };
    let reason = |word| Reason::of(word).degraded_as(trouble);
    let answered = BackendAnswer {
        status,
        backend: response.body().backend_address(),
        attempts: response.body().attempts(),
        failure: match shed {
            Some(shed) => Some(reason(shed.name())),
            None => is_failure().then(|| reason("answered-with-failure")),
        },
    };
    connection.context.recorder.answered(connection.source(), case, &answered);
}

fn log_head(entry: &mut Entry, response: &Response<client::ResponseBody>) {
    entry.on_head(response.status());
    entry.hear(response.headers());
    entry.backend = Some(response.body().backend_address());
    entry.attempts = response.body().attempts();
}
