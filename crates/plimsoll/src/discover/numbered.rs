//! Lists in which each backend has an ordinal of its own.

use std::num::NonZeroU32;

use plimsoll_core::subset::{OrdinalError, check_ordinals};

use super::{Answer, Discover, Endpoint, Readiness};

/// A source whose lists number the backends, for subset algorithms that need it. A list with a backend
/// without an ordinal of its own is an error, and the backends stay as they are: another number for each
/// of them would move most connections.
///
/// A backend that is not ready may have the ordinal of another, or none: it gets no requests.
#[derive(Clone, Debug)]
pub struct Numbered<S>(pub S);

impl<S: Discover> Discover for Numbered<S> {
    async fn next(&mut self) -> Option<Answer> {
        Some(self.0.next().await?.and_then(|list| match check(&list) {
            Ok(()) => Ok(list),
            Err(error) => Err(error.into()),
        }))
    }

    fn confirmations(&self) -> NonZeroU32 {
        self.0.confirmations()
    }

    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn description(&self) -> String {
        self.0.description()
    }
}

fn check(list: &[Endpoint]) -> Result<(), String> {
    let numbered: Vec<&Endpoint> = list.iter().filter(|endpoint| endpoint.readiness == Readiness::Ready).collect();
    check_ordinals(numbered.iter().map(|endpoint| endpoint.ordinal)).map_err(|error| match error {
        OrdinalError::Missing(place) => {
            format!("{} has no ordinal: give each backend a number of its own", numbered[place].address)
        }
        OrdinalError::Shared(one, other) => {
            let [one, other] = [one, other].map(|place| numbered[place]);
            let ordinal = one.ordinal.unwrap_or_default();
            format!(
                "{} and {} share ordinal {ordinal}: give each backend a number of its own",
                one.address, other.address
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Fixed;
    use super::*;

    async fn answer(list: Vec<Endpoint>) -> Result<Vec<Endpoint>, String> {
        Numbered(Fixed::new(list)).next().await.expect("one list").map_err(|error| error.to_string())
    }

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::new(([10, 0, 0, 1], port))
    }

    #[tokio::test]
    async fn list_is_refused_when_a_backend_has_no_ordinal_of_its_own() {
        let list = vec![endpoint(80).ordinal(0), endpoint(81).ordinal(7)];
        assert_eq!(answer(list.clone()).await, Ok(list));
        let error = answer(vec![endpoint(80).ordinal(0), endpoint(81)]).await.unwrap_err();
        assert!(error.starts_with("10.0.0.1:81 has no ordinal"), "{error}");
        let error = answer(vec![endpoint(80).ordinal(5), endpoint(81).ordinal(5)]).await.unwrap_err();
        assert!(error.starts_with("10.0.0.1:80 and 10.0.0.1:81 share ordinal 5"), "{error}");
    }

    #[tokio::test]
    async fn draining_backend_may_share_the_ordinal_of_its_successor() {
        let old = endpoint(80).ordinal(0).readiness(Readiness::Draining);
        let list = vec![old, endpoint(82).readiness(Readiness::Draining), endpoint(81).ordinal(0)];
        assert_eq!(answer(list.clone()).await, Ok(list));
    }
}
