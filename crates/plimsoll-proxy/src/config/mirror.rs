//! A route's mirror, as in the file: copies of its requests for another cluster.

use std::num::NonZeroU32;

use http::Method;
use plimsoll_config::{ByteSize, Checker, Effect, List, help_for_name, table};
use plimsoll_core::Ratio;

use super::route::Route;
use super::value::METHOD;

/// Copies in flight of one route: at some 100 KiB each with the largest body 8 MiB.
const DEFAULT_MAX_ACTIVE: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
/// Nearly all forms and API calls; that of retries.
const DEFAULT_MAX_BODY: ByteSize = ByteSize::kib(64);

/// Copies in flight go on.
const ACTION: Effect = Effect::Applied("from the next request on");

table! {
    /// Copies of a route's requests for another cluster.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Mirror {
        /// The cluster that gets them, by name; it exists.
        pub cluster: String = String::new(), required, ACTION;
        /// The part of the requests that is copied.
        pub share: Ratio = Ratio::ONE, value, ACTION;
        /// Methods of requests that are copied.
        // A copy of a request that changes something changes it twice where the data is shared.
        pub methods: Vec<Method> = vec![Method::GET, Method::HEAD], value_as(List(METHOD)), ACTION;
        /// Copies in flight; beyond it, requests are not copied.
        pub max_active: NonZeroU32 = DEFAULT_MAX_ACTIVE, value, ACTION;
        /// The longest body that is copied.
        pub max_body: ByteSize = DEFAULT_MAX_BODY, value, ACTION;
    }
}

impl Route {
    /// Reports contradictions among the settings of its mirror. `path` is that of the route,
    /// `clusters` are all clusters, each with whether it has a gate.
    pub(super) fn check_mirror<'c>(
        &self,
        path: &str,
        clusters: impl Iterator<Item = (&'c str, bool)> + Clone,
        checker: &mut Checker<'_>,
    ) {
        let Some(mirror) = &self.mirror else { return };
        let place = format!("{path}.mirror.cluster");
        let name = mirror.cluster.as_str();
        let known = clusters.clone().find(|(known, _)| *known == name);
        match known {
            // One that could not be read was reported already.
            _ if name.is_empty() || clusters.clone().next().is_none() => {}
            None => {
                let help = help_for_name(name, clusters.map(|(name, _)| name));
                checker.report(place, format!("there is no cluster \"{name}\""), help);
            }
            Some(_) if self.clusters().any(|own| own == name) => {
                let reason = format!("the route leads to \"{name}\" already, so it would get these requests twice");
                checker.report(place, reason, "name another cluster");
            }
            Some((_, true)) => {
                let reason = format!("inbound of \"{name}\" does not see copies of requests");
                checker.report(place, reason, "name a cluster without inbound");
            }
            Some(_) => {}
        }
        if mirror.share == Ratio::ZERO {
            let help = "write a share above 0, such as \"10%\", or remove the mirror";
            checker.report(format!("{path}.mirror.share"), "is 0, so nothing is copied", help);
        }
        if mirror.methods.is_empty() && checker.is_readable(&format!("{path}.mirror.methods")) {
            let help = "name at least one, such as \"GET\", or leave it out";
            checker.report(format!("{path}.mirror.methods"), "is empty, so nothing is copied", help);
        }
    }
}
