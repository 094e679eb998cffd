//! The name that is meant: a host may be in one of several search domains.
//!
//! ```text
//! web.shop.      web.shop.
//! web.shop       web.shop., then web.shop.DOMAIN for each domain      as many dots as ndots
//! web            web.DOMAIN for each domain, then web.                fewer
//! ```
//!
//! The next name is tried when the one before does not exist. After an error it is not: the name may
//! exist, and the next one may be another service, such as the wildcard of a company's domain. glibc
//! goes on after SERVFAIL, musl does not.

use hickory_proto::rr::{Name, RecordType};

use super::Failure;
use super::answer::{MAX_ALIASES, Reading, Records, read};
use super::servers::Ask;
use super::system::Local;

/// The names that `name` may mean, in the order to try them.
pub(super) fn candidates(name: &Name, local: &Local) -> Vec<Name> {
    let mut itself = name.clone();
    itself.set_fqdn(true);
    if name.is_fqdn() {
        return vec![itself];
    }
    // A domain that makes the name too long has no such name.
    let within = local.search.iter().filter_map(|domain| name.clone().append_domain(domain).ok());
    let mut names: Vec<Name> = within.collect();
    let has_dots = usize::from(name.num_labels()).saturating_sub(1) >= local.ndots;
    let at = if has_dots { 0 } else { names.len() };
    names.insert(at, itself);
    names
}

/// The records of exactly this name, by its aliases.
pub(super) async fn records(ask: &impl Ask, local: &Local, name: &Name, kind: RecordType) -> Result<Records, Failure> {
    let mut name = name.clone();
    let mut ttl = None;
    for _ in 0..=MAX_ALIASES {
        let message = ask.ask(local, &name, kind).await?;
        match read(message, &name, kind)? {
            Reading::Records(found) => {
                let ttl = ttl.map_or(found.ttl, |ttl| found.ttl.min(ttl));
                return Ok(Records { ttl, ..found });
            }
            Reading::Alias(next, alias_ttl) => {
                ttl = Some(ttl.map_or(alias_ttl, |ttl| alias_ttl.min(ttl)));
                name = next;
            }
        }
    }
    Err(Failure::Aliases(MAX_ALIASES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_decide_whether_the_name_itself_comes_first() {
        let local = Local::parse("search a.example b.example\noptions ndots:2\n");
        let names = |name: &str| -> Vec<String> {
            candidates(&Name::from_ascii(name).unwrap(), &local).iter().map(Name::to_ascii).collect()
        };
        assert_eq!(names("web"), ["web.a.example.", "web.b.example.", "web."]);
        assert_eq!(names("web.shop"), ["web.shop.a.example.", "web.shop.b.example.", "web.shop."]);
        assert_eq!(names("web.shop.x"), ["web.shop.x.", "web.shop.x.a.example.", "web.shop.x.b.example."]);
        assert_eq!(names("web."), ["web."]);
        let longest = vec!["a".repeat(61); 4].join(".");
        assert_eq!(names(&longest), [format!("{longest}.")]);
    }
}
