//! Requests to etcd: at one endpoint or, as far as they may be repeated, several.
//!
//! Reads are repeated at other endpoints. A transaction is repeated only if it cannot have been done:
//! its caller compares revisions, and looks at the store after an error.
//!
//! Each request says that it needs a member with a leader. So a member that is cut off from its
//! quorum ends watches, which would be silent otherwise.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::Instant;
use tonic::Request;

use crate::config::EtcdConfig;
use crate::connection::Connection;
use crate::endpoints::Endpoints;
use crate::error::EtcdError;
use crate::failure::Failure;
use crate::message::{
    KeyValue, LEASE_GRANT, LEASE_REVOKE, LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, RANGE, RangeRequest, RangeResponse, TXN, TxnResponse,
};
use crate::reach::Reach;
use crate::token::{Token, Tokens, with_leader};
use crate::txn::{Txn, TxnResult};

/// Endpoints for one request.
const MAX_ATTEMPTS: usize = 3;
/// Records of one page of a list.
const PAGE: i64 = 1_000;
/// Records of one list: ten fleets of the size that etcd is good for.
const MAX_RECORDS: usize = 100_000;
/// Bytes of the keys and values of one list.
const MAX_BYTES: usize = 64 << 20;

/// A record of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key; in a [`Mirror`](crate::Mirror) without the prefix.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the creation of the key.
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
    endpoints: Endpoints,
    tokens: Tokens,
    reach: Reach,
}

impl Client {
    /// A client. It connects with its first request.
    #[must_use]
    pub fn new(config: EtcdConfig) -> Self {
        let (endpoints, reach) = (Endpoints::new(&config), Reach::new(&config.endpoints));
        Self(Arc::new(Inner { config, endpoints, tokens: Tokens::default(), reach }))
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
        let (mut bytes, mut limit) = (0, PAGE);
        loop {
            let range =
                RangeRequest { key: key.clone(), range_end: range_end.clone(), limit, revision: listing.revision };
            let response: RangeResponse = match self.read(RANGE, range).await {
                // Records that are large: fewer of them at once.
                Err(EtcdError::MessageTooLarge) if limit > 1 => {
                    limit = (limit / 8).max(1);
                    continue;
                }
                response => response?,
            };
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

    /// Ends a lease, with its keys. One that has ended is no error: the request may be a repeated one.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), EtcdError> {
        match self.read::<_, LeaseRevokeResponse>(LEASE_REVOKE, LeaseRevokeRequest { id }).await {
            Ok(_) | Err(EtcdError::LeaseNotFound) => Ok(()),
            Err(error) => Err(error),
        }
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
    async fn call<Q, A>(&self, path: &'static str, message: Q, may_repeat: bool) -> Result<A, EtcdError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let began = Instant::now();
        let mut attempts = self.0.config.endpoints.len().min(MAX_ATTEMPTS);
        let mut tokens = 1;
        loop {
            let connection = self.connection().await?;
            let mut used = None;
            let failure = match self.call_at(&connection, path, message.clone(), &mut used).await {
                Ok(answer) => {
                    self.0.reach.answered();
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            match failure {
                Failure::Token if tokens > 0 => {
                    tokens -= 1;
                    connection.answered();
                    self.0.tokens.forget(&used).await;
                }
                Failure::Token | Failure::Final(_) => {
                    // A refusal is an answer.
                    connection.answered();
                    self.0.reach.answered();
                    return Err(failure.into_error());
                }
                Failure::Endpoint { error, may_be_done } => {
                    self.leave(&connection).await;
                    attempts -= 1;
                    if attempts == 0 || (may_be_done && !may_repeat) {
                        self.0.reach.lost(began, &error);
                        return Err(EtcdError::Unreachable(error));
                    }
                }
            }
        }
    }

    async fn call_at<Q, A>(
        &self,
        connection: &Connection,
        path: &'static str,
        message: Q,
        used: &mut Token,
    ) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.request(connection, message, used).await?;
        connection.unary(PathAndQuery::from_static(path), request).await
    }

    /// A request with the token of the user, which is `used` then.
    pub(crate) async fn request<Q>(
        &self,
        connection: &Connection,
        message: Q,
        used: &mut Token,
    ) -> Result<Request<Q>, Failure> {
        let mut request = with_leader(message);
        if let Some(source) = &self.0.config.credentials {
            used.clone_from(&self.0.tokens.get(source, connection).await?);
        }
        if let Some(token) = used.clone() {
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    /// The connection, opened if there is none.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, EtcdError> {
        let began = Instant::now();
        self.0.endpoints.connection(&self.0.config).await.map_err(|errors| {
            self.0.reach.lost(began, &errors);
            EtcdError::Unreachable(errors)
        })
    }

    async fn leave(&self, connection: &Arc<Connection>) {
        self.0.endpoints.leave(connection, &self.0.config).await;
    }

    /// The end of a stream that was not asked for: the next one has a new token, or another endpoint.
    pub(crate) async fn stream_failed(
        &self,
        connection: &Arc<Connection>,
        used: &Token,
        failure: Failure,
    ) -> EtcdError {
        match &failure {
            Failure::Token => self.0.tokens.forget(used).await,
            Failure::Endpoint { error, .. } => {
                self.leave(connection).await;
                self.0.reach.broke(error);
            }
            Failure::Final(_) => {}
        }
        if !matches!(failure, Failure::Endpoint { .. }) {
            connection.answered();
            self.0.reach.answered();
        }
        failure.into_error()
    }
}

/// Whether a prefix is one that a client accepts.
pub(crate) fn check_size(prefix: &str, records: usize, bytes: usize) -> Result<(), EtcdError> {
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
