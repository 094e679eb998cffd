//! How critical requests are, as the file says it.

use http::HeaderName;
use plimsoll_config::{Choice, Flaw, Format, OFF, choice, quoted, text};
use plimsoll_core::Criticality;
use plimsoll_core::classify::{Classifier, Trust};

/// A criticality.
pub(super) const CRITICALITY: Choice<Criticality> = Choice { noun: "a criticality", names: &LEVELS };

/// How far senders are believed that say how critical their requests are.
pub(super) const TRUST: Format<Trust> = Format {
    read: |v| {
        let up_to = LEVELS.map(|(name, level)| (name, Trust::UpTo(level)));
        choice(v, "a criticality", &[up_to[0], up_to[1], up_to[2], up_to[3], (OFF, Trust::None)])
    },
    print: |trust| match trust {
        Trust::None => quoted(OFF),
        Trust::UpTo(level) => quoted(level),
        Trust::Full => quoted(Criticality::CriticalPlus),
    },
};

/// The name of a header field.
pub(super) const FIELD_NAME: Format<HeaderName> = Format {
    read: |v| {
        let name = text(v, "the name of a header", "a name in quotes, such as \"x-customer\"")?;
        let flaw = || Flaw::new(format!("\"{name}\" is not the name of a header"), "write one such as \"x-customer\"");
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| flaw())
    },
    print: |name| quoted(name),
};

const LEVELS: [(&str, Criticality); 4] = [
    (Criticality::CriticalPlus.name(), Criticality::CriticalPlus),
    (Criticality::Critical.name(), Criticality::Critical),
    (Criticality::SheddablePlus.name(), Criticality::SheddablePlus),
    (Criticality::Sheddable.name(), Criticality::Sheddable),
];

/// The criticality of requests without a claim, and the trust in claims. A claim to be less
/// critical harms nobody else, so it is believed unless the file says otherwise; a claim to be more
/// so is not.
pub(super) fn classifier(otherwise: Option<Criticality>, trust: Option<Trust>) -> Classifier {
    let otherwise = otherwise.unwrap_or_default();
    Classifier { trust: trust.unwrap_or(Trust::UpTo(otherwise)), otherwise }
}

#[cfg(test)]
mod tests {
    use Criticality::{Critical, CriticalPlus, Sheddable, SheddablePlus};

    use super::*;

    #[test]
    fn nobody_makes_itself_more_critical_than_others_unless_the_file_lets_it() {
        let is = |otherwise, trust, claimed| classifier(otherwise, trust).criticality(Some(claimed));
        assert_eq!(is(None, None, CriticalPlus), Critical);
        assert_eq!(is(None, None, Sheddable), Sheddable);
        assert_eq!(is(Some(SheddablePlus), None, Critical), SheddablePlus);
        assert_eq!(is(Some(SheddablePlus), Some(Trust::UpTo(CriticalPlus)), CriticalPlus), CriticalPlus);
        assert_eq!(is(None, Some(Trust::None), Sheddable), Critical);
    }
}
