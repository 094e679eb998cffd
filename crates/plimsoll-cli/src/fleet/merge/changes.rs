//! The latest changes at all proxies, by time.
//!
//! Proxies that share backends see the same change within seconds, each by itself. They are one
//! change with the names of all: 64 proxies that lose a backend would displace everything else.

use plimsoll_admin::LiveChange;
use plimsoll_admin::parts::MAX_CHANGES;

use super::Member;

/// Time within which the same change at several proxies is one.
const TOGETHER_S: f64 = 10.0;

pub(super) fn merge(members: &[Member<'_>]) -> Vec<LiveChange> {
    let each = members.iter().filter_map(|member| Some((member, member.live?)));
    let mut all: Vec<LiveChange> = each
        .flat_map(|(member, live)| {
            let of_proxy = |change: &LiveChange| LiveChange {
                // By our clock: changes of several machines are in one order.
                at: change.at - member.ahead_s,
                proxies: vec![member.label().to_owned()],
                ..change.clone()
            };
            live.changes.iter().map(of_proxy)
        })
        .collect();
    all.sort_by(|a, b| b.at.total_cmp(&a.at).then_with(|| a.proxies.cmp(&b.proxies)));
    let mut merged: Vec<LiveChange> = Vec::new();
    for change in all {
        // From the newest on, so a group has the time of its latest one.
        match merged.iter().position(|known| is_same(known, &change)) {
            Some(place) => merged[place].proxies.extend(change.proxies),
            None if merged.len() < MAX_CHANGES => merged.push(change),
            None => {}
        }
    }
    for change in &mut merged {
        change.proxies.sort_unstable();
        change.proxies.dedup();
    }
    merged
}

/// Whether another proxy saw the same. What one proxy saw twice happened twice.
fn is_same(known: &LiveChange, change: &LiveChange) -> bool {
    known.at - change.at <= TOGETHER_S
        && (&known.kind, &known.cluster, &known.subject, &known.text)
            == (&change.kind, &change.cluster, &change.subject, &change.text)
        && !change.proxies.iter().any(|name| known.proxies.contains(name))
}
