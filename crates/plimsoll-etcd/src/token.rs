//! The token of a user, made once for all requests that need it: etcd hashes the password for tens of
//! milliseconds each time.

use http::uri::PathAndQuery;
use tokio::time::Instant;
use tonic::Request;
use tonic::metadata::AsciiMetadataValue;

use crate::config::{Credentials, Source};
use crate::connection::Connection;
use crate::error::EtcdError;
use crate::failure::Failure;
use crate::message::{AUTHENTICATE, AuthenticateRequest, AuthenticateResponse};

/// The refusal of a password where etcd has no users.
const NO_USERS: &str = "authentication is not enabled";

pub(crate) type Token = Option<AsciiMetadataValue>;

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    /// Locked while one is made.
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    token: Token,
    /// The last attempt, if it failed: all that waited for it share its end.
    failed: Option<(Instant, Failure)>,
}

impl Tokens {
    pub(crate) async fn get(&self, source: &Source<Credentials>, connection: &Connection) -> Result<Token, Failure> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if state.token.is_some() {
            return Ok(state.token.clone());
        }
        if let Some((_, failure)) = state.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(failure.clone());
        }
        let made = authenticate(source, connection).await;
        match &made {
            Ok(token) => state.token.clone_from(token),
            Err(failure) => state.failed = Some((Instant::now(), failure.clone())),
        }
        made
    }

    /// This token is no longer valid. Another one that was made meanwhile stays.
    pub(crate) async fn forget(&self, token: &Token) {
        let mut state = self.state.lock().await;
        if state.token == *token {
            state.token = None;
        }
    }
}

/// `None`: etcd has no users. So their set-up has no order: first the clients, then `auth enable`.
async fn authenticate(source: &Source<Credentials>, connection: &Connection) -> Result<Token, Failure> {
    let failed = |error| Failure::Final(EtcdError::Credentials(error));
    let credentials = source().map_err(failed)?;
    let message = AuthenticateRequest { name: credentials.user, password: credentials.password };
    let request = with_leader(message);
    let answer: AuthenticateResponse = match connection.unary(PathAndQuery::from_static(AUTHENTICATE), request).await {
        Ok(answer) => answer,
        Err(Failure::Final(EtcdError::Refused(reason))) if reason.contains(NO_USERS) => return Ok(None),
        // The request that needs the token was not sent.
        Err(Failure::Endpoint { error, .. }) => return Err(Failure::Endpoint { error, may_be_done: false }),
        Err(failure) => return Err(failure),
    };
    let token = AsciiMetadataValue::try_from(answer.token).map_err(|error| failed(error.to_string()))?;
    Ok(Some(token))
}

/// A request that a member without a leader refuses.
pub(crate) fn with_leader<Q>(message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
    request
}
