//! This proxy among the clients of its fleet: its member key in etcd, and the subsets that come from
//! there.
//!
//! Another group, id or etcd is another member. The clusters keep their last subsets meanwhile.

use std::collections::BTreeMap;

use plimsoll::client::Cluster;
use plimsoll_core::subset::Algorithm;
use plimsoll_etcd::Session;
use plimsoll_fleet::{HeldNumber, Index, LEASE, Ledger, LedgerConfig, Member, Name};

use crate::config::{Config, Coordinated, FleetMember};

/// The part of this proxy in the fleet; empty without a group.
#[derive(Debug, Default)]
pub(crate) struct Fleet(Option<Joined>);

#[derive(Debug)]
struct Joined {
    settings: FleetMember,
    session: Session,
    member: Member,
    /// Taken with the first cluster that needs it.
    index: Option<HeldNumber>,
    clusters: BTreeMap<String, (Coordinated, Part)>,
}

/// The origin of a cluster's subset.
#[derive(Debug)]
enum Part {
    Index { _task: Index },
    Ledger(Ledger),
}

/// The proxy and its etcd, for metrics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EtcdView {
    /// Whether etcd answers.
    pub is_reachable: bool,
    /// Its answers, of all kinds.
    pub answers: u64,
    /// Requests without an answer, and streams that broke.
    pub failures: u64,
    /// The index of this proxy in its group; `None` if it takes none, or has none yet.
    pub index: Option<u32>,
    /// Clusters with a ledger, and whether this proxy leads it.
    pub ledgers: Vec<(String, bool)>,
}

impl Fleet {
    /// Joins or leaves the group of `config`, and has each of its clusters take its subset from there.
    pub(crate) fn update(&mut self, config: &Config, clusters: &BTreeMap<String, Cluster>) {
        let settings = config.fleet_member();
        if self.0.as_ref().map(|joined| &joined.settings) != settings.as_ref() {
            self.0 = settings.map(Joined::new);
        }
        let Some(joined) = &mut self.0 else { return };
        joined.clusters.retain(|name, (coordinated, _)| config.coordinated(name).as_ref() == Some(coordinated));
        for (name, cluster) in clusters {
            if let Some(coordinated) = config.coordinated(name)
                && !joined.clusters.contains_key(name)
            {
                let part = joined.part(&coordinated, cluster);
                joined.clusters.insert(name.clone(), (coordinated, part));
            }
        }
    }

    /// The state of this part and of its etcd; `None` without one.
    pub(crate) fn view(&self, config: &Config) -> Option<EtcdView> {
        let reach = config.etcd()?.client().reach();
        let joined = self.0.as_ref();
        let ledger = |(name, (_, part)): (&String, &(Coordinated, Part))| match part {
            Part::Ledger(ledger) => Some((name.clone(), ledger.is_leader())),
            Part::Index { .. } => None,
        };
        Some(EtcdView {
            is_reachable: reach.is_reachable(),
            answers: reach.answers(),
            failures: reach.failures(),
            index: joined.and_then(|joined| *joined.index.as_ref()?.number().borrow()),
            ledgers: joined.iter().flat_map(|joined| &joined.clusters).filter_map(ledger).collect(),
        })
    }

    /// Leaves the group at once, and not with the end of the lease.
    pub(crate) async fn leave(self) {
        let Some(Joined { session, .. }) = self.0 else { return };
        if let Err(error) = session.end().await {
            tracing::warn!(%error, "the group of clients was not left: the lease ends the membership");
        }
    }
}

impl Joined {
    fn new(settings: FleetMember) -> Self {
        let client = settings.etcd.client();
        let session = Session::start(client.clone(), LEASE);
        let member = Member::join(client, &session, &settings.group, &settings.id);
        Self { settings, session, member, index: None, clusters: BTreeMap::new() }
    }

    fn part(&mut self, coordinated: &Coordinated, cluster: &Cluster) -> Part {
        let Coordinated { algorithm, cluster: ref service, size, seed } = *coordinated;
        if algorithm == Algorithm::Ledger {
            let service = Name::new(service).expect("the configuration has checked it");
            let config = LedgerConfig { service, size, seed };
            return Part::Ledger(Ledger::start(&self.member, config, cluster));
        }
        let index = self.index.get_or_insert_with(|| self.member.index());
        Part::Index { _task: Index::follow(index, cluster) }
    }
}
