//! The state of the limits, as the API of the quota server has it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::customer::{CUSTOMERS, GREEDY};
use crate::admin::fetch::exchange;

/// For one answer. Much, since the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(5);
/// The service of limits that arguments of the server name.
const SERVICE: &str = "/api/v1/quota/default";

/// The limits at one moment.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Whether the server knows all rates in use.
    pub(crate) is_sure: bool,
    /// Tasks with a stream.
    pub(crate) connected: usize,
    /// Where each customer is cut, in the order of [`CUSTOMERS`].
    pub(crate) cuts: Vec<Option<Cut>>,
    /// CPUs of the limit of the greedy customer that each backend holds.
    pub(crate) held: Vec<f64>,
}

/// Where a customer is cut.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Cut {
    /// Requests below it are refused.
    pub(crate) criticality: String,
    /// The part of it that is admitted.
    pub(crate) admitted: f64,
}

#[derive(Deserialize)]
struct Service {
    unsure: bool,
    customers: Vec<Customer>,
    instances: Vec<Instance>,
}

#[derive(Deserialize)]
struct Customer {
    customer: String,
    cut: Option<Cut>,
    #[serde(default)]
    holders: Vec<Holder>,
}

#[derive(Deserialize)]
struct Instance {
    connected: bool,
}

#[derive(Deserialize)]
struct Holder {
    instance: String,
    held_cpus: f64,
}

impl State {
    /// Reads it from the server at `admin`. `backends` has the process id of each.
    pub(super) async fn read(admin: SocketAddr, backends: &[u32]) -> anyhow::Result<Self> {
        let service: Service = get(admin, SERVICE).await?;
        let greedy: Customer = get(admin, &format!("{SERVICE}/customers/{}", CUSTOMERS[GREEDY].name)).await?;
        let held: HashMap<u32, f64> =
            greedy.holders.iter().filter_map(|holder| Some((pid(&holder.instance)?, holder.held_cpus))).collect();
        let cut = |name| service.customers.iter().find(|of| of.customer == name).and_then(|of| of.cut.clone());
        Ok(Self {
            is_sure: !service.unsure,
            connected: service.instances.iter().filter(|task| task.connected).count(),
            cuts: CUSTOMERS.iter().map(|customer| cut(customer.name)).collect(),
            held: backends.iter().map(|pid| held.get(pid).copied().unwrap_or(0.0)).collect(),
        })
    }
}

/// The process id in the name of a task: `HOST/PID/NUMBER`.
fn pid(instance: &str) -> Option<u32> {
    instance.rsplit('/').nth(1)?.parse().ok()
}

async fn get<T: DeserializeOwned>(admin: SocketAddr, path: &str) -> anyhow::Result<T> {
    let answer = exchange(admin, Method::GET, path, PATIENCE).await;
    let (status, body) = answer.map_err(|failure| anyhow!("no answer from the quota server: {failure}"))?;
    if status != 200 {
        bail!("the quota server answers {status} at {path}: {}", String::from_utf8_lossy(&body));
    }
    serde_json::from_slice(&body).with_context(|| format!("{path} of the quota server cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_id_is_in_the_name_of_a_task() {
        assert_eq!(pid("host/417/00c0ffee"), Some(417));
        assert_eq!(pid("a/b/417/00c0ffee"), Some(417));
        assert_eq!(pid("task"), None);
    }
}
