//! How critical requests are, as the file says it.

use http::HeaderName;
use plimsoll_config::{Flaw, OFF, choice, quoted, text, values};
use plimsoll_core::Criticality;
use plimsoll_core::classify::{Classifier, Trust};

/// A criticality, as the file writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(pub Criticality);

/// How far senders are believed that say how critical their requests are, as the file writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Believed(pub Trust);

/// The name of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName(pub HeaderName);

const LEVELS: [(&str, Criticality); 4] = [
    (Criticality::CriticalPlus.name(), Criticality::CriticalPlus),
    (Criticality::Critical.name(), Criticality::Critical),
    (Criticality::SheddablePlus.name(), Criticality::SheddablePlus),
    (Criticality::Sheddable.name(), Criticality::Sheddable),
];

/// The criticality of requests without a claim, and the trust in claims. A claim to be less
/// critical harms nobody else, so it is believed unless the file says otherwise; a claim to be more
/// so is not.
pub(super) fn classifier(otherwise: Option<Level>, believed: Option<Believed>) -> Classifier {
    let otherwise = otherwise.map_or_else(Criticality::default, |level| level.0);
    Classifier { trust: believed.map_or(Trust::UpTo(otherwise), |believed| believed.0), otherwise }
}

values! {
    Level: |v| choice(v, "a criticality", &LEVELS).map(Self), |level| quoted(level.0);
    Believed: |v| {
        let up_to = LEVELS.map(|(name, level)| (name, Trust::UpTo(level)));
        choice(v, "a criticality", &[up_to[0], up_to[1], up_to[2], up_to[3], (OFF, Trust::None)]).map(Self)
    }, |believed| match believed.0 {
        Trust::None => quoted(OFF),
        Trust::UpTo(level) => quoted(level),
        Trust::Full => quoted(Criticality::CriticalPlus),
    };
    FieldName: |v| {
        let name = text(v, "the name of a header", "a name in quotes, such as \"x-customer\"")?;
        let flaw = || Flaw::new(format!("\"{name}\" is not the name of a header"), "write one such as \"x-customer\"");
        HeaderName::from_bytes(name.as_bytes()).map(Self).map_err(|_| flaw())
    }, |name| quoted(&name.0);
}

#[cfg(test)]
mod tests {
    use Criticality::{Critical, CriticalPlus, Sheddable, SheddablePlus};

    use super::*;

    #[test]
    fn nobody_makes_itself_more_critical_than_others_unless_the_file_lets_it() {
        let is = |otherwise: Option<Criticality>, believed: Option<Trust>, claimed| {
            classifier(otherwise.map(Level), believed.map(Believed)).criticality(Some(claimed))
        };
        assert_eq!(is(None, None, CriticalPlus), Critical);
        assert_eq!(is(None, None, Sheddable), Sheddable);
        assert_eq!(is(Some(SheddablePlus), None, Critical), SheddablePlus);
        assert_eq!(is(Some(SheddablePlus), Some(Trust::UpTo(CriticalPlus)), CriticalPlus), CriticalPlus);
        assert_eq!(is(None, Some(Trust::None), Sheddable), Critical);
    }
}
