//! Requests to etcd: the connection, the endpoints in turn, the token of a user.
//!
//! One connection at a time, to one endpoint. A client stays there until a request on it times out or
//! is refused for lack of a leader; then the next endpoint is used. A client begins anywhere in the
//! list, so that clients spread over the endpoints. Reads are repeated at other endpoints. A
//! transaction is repeated only if it cannot have been done: its caller compares revisions, and looks
//! at the store after an error.
//!
//! Each request says that it needs a member with a leader. So a member that is cut off from its
//! quorum ends watches, which would be silent otherwise.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use prost::Message;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::time::timeout;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::config::EtcdConfig;
use crate::connection::Connection;
use crate::error::EtcdError;
use crate::message::{
    AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, KeyValue, LEASE_GRANT, LEASE_REVOKE, LeaseGrantRequest,
    LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse, RANGE, RangeRequest, RangeResponse, TXN, TxnResponse,
};
use crate::reach::Reach;
use crate::txn::{Txn, TxnResult};

/// Time for a connection, with the handshake of TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for an answer. A new leader of etcd is elected within one to two seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Endpoints at which one read is made.
const MAX_READS: usize = 3;
/// Records of one page of a list.
const PAGE: i64 = 1_000;
/// Records of one list: ten fleets of the size that etcd is good for.
const MAX_RECORDS: usize = 100_000;
/// Bytes of the keys and values of one list.
const MAX_BYTES: usize = 64 << 20;

/// The refusal of a password where etcd has no users.
const NO_USERS: &str = "authentication is not enabled";

/// A record of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key; in a [`Mirror`](crate::Mirror) without the prefix.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the store at which the key came to be.
    pub create_revision: i64,
    /// The revision of the last change.
    pub mod_revision: i64,
    /// The lease that it ends with; 0: none.
    pub lease: i64,
}

impl Record {
    /// `None`: the key is no text, so none of ours.
    pub(crate) fn new(kv: KeyValue) -> Option<Self> {
        let KeyValue { key, create_revision, mod_revision, value, lease } = kv;
        Some(Self { key: String::from_utf8(key).ok()?, value, create_revision, mod_revision, lease })
    }
}

/// The records of a prefix at one revision.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The revision of the store.
    pub revision: i64,
    /// By key.
    pub records: Vec<Record>,
    pub(crate) cluster_id: u64,
}

/// A client of etcd. Clones share its connection.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: EtcdConfig,
    /// Locked while it connects: all requests wait for one connection.
    current: tokio::sync::Mutex<Current>,
    token: Mutex<Option<AsciiMetadataValue>>,
    reach: Reach,
}

#[derive(Debug)]
struct Current {
    connection: Option<Arc<Connection>>,
    /// The place of the endpoint to connect with.
    place: usize,
}

/// How a request ended that was not answered.
pub(crate) enum Failure {
    /// The token is no longer valid. The request was not done.
    Token,
    /// The endpoint is of no use now.
    Endpoint { error: String, may_be_done: bool },
    /// The answer of etcd.
    Final(EtcdError),
}

impl Client {
    /// A client. It connects with its first request.
    #[must_use]
    pub fn new(config: EtcdConfig) -> Self {
        let place = rng().next_u32() as usize % config.endpoints.len();
        let reach = Reach::new(&config.endpoints);
        let current = tokio::sync::Mutex::new(Current { connection: None, place });
        Self(Arc::new(Inner { config, current, token: Mutex::new(None), reach }))
    }

    /// The first part of each key of the fleet, with a slash at its end.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.0.config.prefix
    }

    /// Whether etcd answers, and counts of requests.
    #[must_use]
    pub fn reach(&self) -> &Reach {
        &self.0.reach
    }

    /// The record of a key.
    ///
    /// # Errors
    /// etcd is unreachable, or refuses.
    pub async fn get(&self, key: &str) -> Result<Option<Record>, EtcdError> {
        self.get_at(key, 0).await
    }

    /// The record that a key had at a revision of the store; 0 is now.
    ///
    /// # Errors
    /// As [`Self::get`]; the revision was compacted.
    pub async fn get_at(&self, key: &str, revision: i64) -> Result<Option<Record>, EtcdError> {
        let range = RangeRequest { key: key.into(), range_end: Vec::new(), limit: 1, revision };
        let response: RangeResponse = self.read(RANGE, range).await?;
        Ok(response.kvs.into_iter().find_map(Record::new))
    }

    /// All records of a prefix, at one revision.
    ///
    /// # Errors
    /// As [`Self::get`]; the prefix has too many records.
    pub async fn list(&self, prefix: &str) -> Result<Listing, EtcdError> {
        let mut listing = Listing { revision: 0, records: Vec::new(), cluster_id: 0 };
        let (mut key, range_end) = (prefix.as_bytes().to_vec(), range_end(prefix));
        let mut bytes = 0;
        loop {
            let range = RangeRequest { key, range_end: range_end.clone(), limit: PAGE, revision: listing.revision };
            let response: RangeResponse = self.read(RANGE, range).await?;
            if listing.revision == 0 {
                let header = response.header.unwrap_or_default();
                (listing.revision, listing.cluster_id) = (header.revision, header.cluster_id);
            }
            let last = response.kvs.last().map(|kv| kv.key.clone());
            bytes += response.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum::<usize>();
            listing.records.extend(response.kvs.into_iter().filter_map(Record::new));
            check_size(prefix, listing.records.len(), bytes)?;
            match last.filter(|_| response.more) {
                None => return Ok(listing),
                // The least key above it.
                Some(mut last) => {
                    last.push(0);
                    key = last;
                }
            }
        }
    }

    /// Makes the changes of a transaction if all of its conditions hold.
    ///
    /// # Errors
    /// As [`Self::get`]. After [`EtcdError::Unreachable`] the changes may have been made.
    pub async fn txn(&self, txn: Txn) -> Result<TxnResult, EtcdError> {
        let response: TxnResponse = self.write(TXN, txn.into_request()).await?;
        let revision = response.header.unwrap_or_default().revision;
        Ok(TxnResult { is_done: response.succeeded, revision })
    }

    /// A new lease: its id, and its time to live as etcd granted it.
    pub(crate) async fn grant(&self, ttl: Duration) -> Result<(i64, Duration), EtcdError> {
        let ttl = ttl.as_secs_f64().ceil() as i64;
        let granted: LeaseGrantResponse = self.write(LEASE_GRANT, LeaseGrantRequest { ttl }).await?;
        if granted.error.is_empty() && granted.ttl > 0 {
            Ok((granted.id, Duration::from_secs(granted.ttl.unsigned_abs())))
        } else {
            Err(EtcdError::Refused(format!("no lease: {}", granted.error)))
        }
    }

    /// Ends a lease, with its keys.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), EtcdError> {
        let _: LeaseRevokeResponse = self.read(LEASE_REVOKE, LeaseRevokeRequest { id }).await?;
        Ok(())
    }

    async fn read<Q, A>(&self, path: &'static str, request: Q) -> Result<A, EtcdError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.call(path, request, true).await
    }

    async fn write<Q, A>(&self, path: &'static str, request: Q) -> Result<A, EtcdError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.call(path, request, false).await
    }

    /// One request, at one endpoint or, as far as it may be repeated, several.
    async fn call<Q, A>(&self, path: &'static str, request: Q, may_repeat: bool) -> Result<A, EtcdError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut reads = self.0.config.endpoints.len().min(MAX_READS);
        let mut tokens = 1;
        loop {
            let connection = self.connection().await?;
            let failure = match self.call_at(&connection, path, request.clone()).await {
                Ok(answer) => {
                    self.0.reach.answered();
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            match failure {
                Failure::Final(error) => {
                    // A refusal is an answer.
                    self.0.reach.answered();
                    return Err(error);
                }
                Failure::Token if tokens > 0 => {
                    tokens -= 1;
                    self.forget_token();
                }
                Failure::Token => return Err(EtcdError::Refused("the token is not accepted".to_owned())),
                Failure::Endpoint { error, may_be_done } => {
                    self.leave(&connection).await;
                    reads -= 1;
                    if reads == 0 || (may_be_done && !may_repeat) {
                        self.0.reach.lost(&error);
                        return Err(EtcdError::Unreachable(error));
                    }
                }
            }
        }
    }

    async fn call_at<Q, A>(&self, connection: &Connection, path: &'static str, message: Q) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.request(connection, message).await?;
        unary(connection, path, request).await
    }

    /// A request with the token of the user.
    pub(crate) async fn request<Q>(&self, connection: &Connection, message: Q) -> Result<Request<Q>, Failure> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = self.token(connection).await? {
            metadata.insert("token", token);
        }
        Ok(request)
    }

    async fn token(&self, connection: &Connection) -> Result<Option<AsciiMetadataValue>, Failure> {
        let Some(credentials) = &self.0.config.credentials else { return Ok(None) };
        let token = self.0.token.lock().clone();
        if token.is_some() {
            return Ok(token);
        }
        let failed = |error| Failure::Final(EtcdError::Credentials(error));
        let credentials = credentials().map_err(failed)?;
        let message = AuthenticateRequest { name: credentials.user, password: credentials.password };
        let answer: AuthenticateResponse = match unary(connection, AUTHENTICATE, Request::new(message)).await {
            Ok(answer) => answer,
            // So the set-up of users has no order: first the clients, then `auth enable`.
            Err(Failure::Final(EtcdError::Refused(reason))) if reason.contains(NO_USERS) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let token = AsciiMetadataValue::try_from(answer.token).map_err(|error| failed(error.to_string()))?;
        *self.0.token.lock() = Some(token.clone());
        Ok(Some(token))
    }

    pub(crate) fn forget_token(&self) {
        *self.0.token.lock() = None;
    }

    /// The connection, opened if there is none, at the first endpoint that accepts one.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, EtcdError> {
        let mut current = self.0.current.lock().await;
        if let Some(connection) = current.connection.as_ref().filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(connection));
        }
        let endpoints = &self.0.config.endpoints;
        let mut errors = Vec::new();
        for _ in 0..endpoints.len() {
            let place = current.place;
            match self.open(place).await {
                Ok(connection) => {
                    current.connection = Some(Arc::clone(&connection));
                    return Ok(connection);
                }
                Err(error) => errors.push(format!("{}: {error}", endpoints[place])),
            }
            current.place = (place + 1) % endpoints.len();
        }
        let errors = errors.join("; ");
        self.0.reach.lost(&errors);
        Err(EtcdError::Unreachable(errors))
    }

    async fn open(&self, place: usize) -> Result<Arc<Connection>, String> {
        let tls = self.0.config.tls.as_ref().map(|source| source()).transpose()?;
        let opened = Connection::open(place, &self.0.config.endpoints[place], tls.as_ref());
        timeout(CONNECT_TIMEOUT, opened).await.unwrap_or_else(|_| Err("no connection within 2 s".to_owned()))
    }

    /// Uses the next endpoint in place of this one, for all requests from now on.
    pub(crate) async fn leave(&self, connection: &Connection) {
        let mut current = self.0.current.lock().await;
        if current.place == connection.place {
            current.connection = None;
            current.place = (connection.place + 1) % self.0.config.endpoints.len();
        }
    }
}

async fn unary<Q, A>(connection: &Connection, path: &'static str, request: Request<Q>) -> Result<A, Failure>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = connection.grpc();
    let answer = async {
        grpc.ready().await.map_err(|error| Failure::endpoint(&error, false))?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        grpc.unary(request, PathAndQuery::from_static(path), codec).await.map_err(Failure::from)
    };
    let silent = |_| Failure::Endpoint { error: "no answer within 3 s".to_owned(), may_be_done: true };
    Ok(timeout(REQUEST_TIMEOUT, answer).await.map_err(silent)??.into_inner())
}

impl Failure {
    pub(crate) fn endpoint(error: &hyper::Error, may_be_done: bool) -> Self {
        Self::Endpoint { error: plimsoll::tls::chain(error), may_be_done }
    }

    /// The same as an error of the client.
    pub(crate) fn into_error(self) -> EtcdError {
        match self {
            Self::Token => EtcdError::Refused("the token is not accepted".to_owned()),
            Self::Endpoint { error, .. } => EtcdError::Unreachable(error),
            Self::Final(error) => error,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let message = status.message();
        match status.code() {
            Code::Unauthenticated => Self::Token,
            // Users or roles changed since the token was made.
            Code::InvalidArgument if message.contains("revision of auth store is old") => Self::Token,
            Code::OutOfRange if message.contains("compacted") => Self::Final(EtcdError::Compacted),
            // No leader, a member that starts or stops, a connection that broke.
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown | Code::Internal => {
                let error = if message.is_empty() { plimsoll::tls::chain(&status) } else { message.to_owned() };
                Self::Endpoint { error, may_be_done: true }
            }
            _ => Self::Final(EtcdError::Refused(message.to_owned())),
        }
    }
}

fn check_size(prefix: &str, records: usize, bytes: usize) -> Result<(), EtcdError> {
    let limit = if records > MAX_RECORDS {
        format!("{MAX_RECORDS} records")
    } else if bytes > MAX_BYTES {
        format!("{MAX_BYTES} bytes")
    } else {
        return Ok(());
    };
    Err(EtcdError::TooLarge { prefix: prefix.to_owned(), limit })
}

/// The least key above all with this prefix.
pub(crate) fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // A byte of UTF-8 is never 0xff.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Clients of one fleet do not act alike.
pub(crate) fn rng() -> Pcg64Mcg {
    use std::hash::{BuildHasher as _, RandomState};
    Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()))
}
