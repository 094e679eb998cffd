//! The owner of each service, as this server knows it.
//!
//! ```text
//! shard of a service = FNV-1a of its name mod 64
//! owner of a service = the server that holds the key of its shard in etcd; without etcd, this server
//! ```
//!
//! Each service has one owner at a time. Customers are not spread over owners: one core is enough for the largest
//! fleets, and groups, trials of limits and the load of the fleet need one owner anyway (decision 76).

use std::sync::Arc;

pub(crate) use plimsoll_core::fleet::shards::SHARDS;
use tokio::time::Instant;
use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::message::{OWNER, OWNER_EPOCH};

/// The owner of the limits of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// This server.
    Ours {
        /// Above that of each earlier owner.
        epoch: u64,
        /// Another one may begin then. `None`: there is no other one ever.
        until: Option<Instant>,
        /// As other servers know it; empty without others.
        address: Arc<str>,
    },
    /// Another server.
    Other { epoch: u64, address: Arc<str> },
    /// None that this server knows.
    #[default]
    Unknown,
}

impl Ownership {
    /// The epoch and the address of the owner if it is known; the address of this server is empty.
    pub(crate) fn owner(&self) -> Option<(u64, &str)> {
        match self {
            Self::Ours { epoch, .. } => Some((*epoch, "")),
            Self::Other { epoch, address } => Some((*epoch, address)),
            Self::Unknown => None,
        }
    }

    /// The same if this server is the owner.
    pub(crate) fn if_ours(self) -> Self {
        if matches!(self, Self::Ours { .. }) { self } else { Self::Unknown }
    }

    /// The status of a stream that is to go to the owner.
    pub(crate) fn status(&self, service: &str) -> Status {
        // A server that lost a service and has it again is another owner: tasks join once more.
        let (Self::Other { epoch, address } | Self::Ours { epoch, address, .. }) = self else {
            return Status::unavailable(format!("no owner of service {service:?} is known here yet"));
        };
        let mut status = Status::failed_precondition(format!("service {service:?} has its owner at {address}"));
        let metadata = status.metadata_mut();
        if let Ok(address) = MetadataValue::try_from(&**address) {
            metadata.insert(OWNER, address);
        }
        metadata.insert(OWNER_EPOCH, MetadataValue::from(*epoch));
        status
    }
}

/// The owners of all services.
#[derive(Clone, Debug)]
pub(crate) enum Owners {
    /// There is no other server.
    Alone { epoch: u64 },
    /// By shard.
    Shared(Arc<[Ownership]>),
}

impl Owners {
    /// None is known yet.
    pub(crate) fn nobody() -> Self {
        Self::Shared(Arc::from([]))
    }

    pub(crate) fn of(&self, service: &str) -> Ownership {
        match self {
            Self::Alone { epoch } => Ownership::Ours { epoch: *epoch, until: None, address: "".into() },
            Self::Shared(shards) => shards.get(shard(service) as usize).cloned().unwrap_or_default(),
        }
    }
}

/// The shard of a service. It is the same in each version.
pub(crate) fn shard(service: &str) -> u32 {
    let hash = service
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The low bits of FNV depend on few bits of the last bytes.
    ((hash ^ (hash >> 32)) % u64::from(SHARDS)) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn shard_of_a_name_never_changes_and_names_spread() {
        assert_eq!(["default", "shop", "web"].map(shard), [40, 17, 40]);
        let shards: BTreeSet<u32> = (0..1_000).map(|number| shard(&format!("service-{number}"))).collect();
        assert_eq!(shards.len() as u32, SHARDS);
    }

    #[test]
    fn redirect_names_the_owner_and_its_epoch() {
        let status = Ownership::Other { epoch: 7, address: "10.0.0.2:9800".into() }.status("shop");
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        assert_eq!(status.message(), "service \"shop\" has its owner at 10.0.0.2:9800");
        let of = |key| status.metadata().get(key).and_then(|value| value.to_str().ok());
        assert_eq!((of(OWNER), of(OWNER_EPOCH)), (Some("10.0.0.2:9800"), Some("7")));
        assert_eq!(Ownership::Unknown.status("shop").code(), tonic::Code::Unavailable);
    }
}
