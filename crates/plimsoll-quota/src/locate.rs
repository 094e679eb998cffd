//! The method `Locate`: a task asks for the owner of its service, and waits for one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tonic::Status;
use tonic::server::UnaryService;

use crate::caller::Caller;
use crate::message::{Locate, Located};
use crate::services::Services;

/// The longest time for which a question waits.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// See the [module](self).
pub(crate) struct Locating(pub(crate) Arc<Services>);

impl UnaryService<Locate> for Locating {
    type Response = Located;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Located>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Locate>) -> Self::Future {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_else(Caller::nobody);
        let services = Arc::clone(&self.0);
        Box::pin(async move { Ok(tonic::Response::new(locate(&services, &caller, request.into_inner()).await?)) })
    }
}

async fn locate(services: &Services, caller: &Caller, question: Locate) -> Result<Located, Status> {
    let Locate { service, above, wait_ms } = question;
    services.check_right(&service, caller)?;
    let mut owners = services.owners.subscribe();
    let found = async {
        loop {
            owners.borrow_and_update();
            let ownership = services.ownership(&service);
            if let Some((epoch, address)) = ownership.owner().filter(|(epoch, _)| *epoch > above) {
                return Located { epoch, address: address.to_owned() };
            }
            if owners.changed().await.is_err() {
                return Located::default();
            }
        }
    };
    let wait = Duration::from_millis(u64::from(wait_ms)).min(MAX_WAIT);
    tokio::select! {
        found = timeout(wait, found) => Ok(found.unwrap_or_default()),
        () = services.ending() => Err(Status::unavailable("the server is ending")),
    }
}
