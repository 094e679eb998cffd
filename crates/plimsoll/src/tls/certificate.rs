//! The names and the validity period in a certificate.
//!
//! webpki checks certificates for rustls, but does not expose a certificate's dates. A second X.509
//! parser only for the dates could disagree with it. But webpki names a date when it rejects a
//! certificate because of it. So it is asked about a moment before all certificates, and one after
//! all.

use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// A moment after every certificate: 10000-01-01, as dates in X.509 have four digits for the year.
const AFTER_ALL: Duration = Duration::from_secs(253_402_300_800);

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub not_before: SystemTime,
    /// The last moment.
    pub not_after: SystemTime,
}

impl Validity {
    /// The period of a certificate. `None` if it is unreadable.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let refusal_at = |since_epoch| {
            let now = UnixTime::since_unix_epoch(since_epoch);
            certificate.verify_for_usage(&[], &[], &[], now, KeyUsage::server_auth(), None, None).err()
        };
        let not_before = match refusal_at(Duration::ZERO) {
            Some(Error::CertNotValidYet { not_before, .. }) => not_before,
            // Good from the beginning of time, as it is counted here.
            _ => UnixTime::since_unix_epoch(Duration::ZERO),
        };
        let Some(Error::CertExpired { not_after, .. }) = refusal_at(AFTER_ALL) else { return None };
        let moment = |time: UnixTime| SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs());
        Some(Self { not_before: moment(not_before), not_after: moment(not_after) })
    }

    /// Whether `now` is within the period.
    #[must_use]
    pub fn holds_at(&self, now: SystemTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

/// The names in a certificate: DNS names in lower case, with `*.` for patterns, and URIs.
///
/// The names are as good as the word of the issuer; only the certificate is verified.
#[must_use]
pub fn names(certificate: &CertificateDer<'_>) -> Box<[Box<str>]> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Box::default() };
    let hosts = certificate.valid_dns_names().map(|name| name.to_ascii_lowercase().into_boxed_str());
    hosts.chain(certificate.valid_uri_names().map(Box::from)).collect()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::tls::testing::Authority;

    fn certificate(names: &[&str], change: impl FnOnce(&mut rcgen::CertificateParams)) -> CertificateDer<'static> {
        let (pem, _) = Authority::new().sign_with(names, change);
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn names_are_those_of_hosts_and_uris() {
        let certificate = certificate(&["A.example", "*.b.example", "spiffe://td/Web", "10.0.0.1"], |_| {});
        let names = names(&certificate);
        assert_eq!(
            names.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["a.example", "*.b.example", "spiffe://td/Web"]
        );
        assert!(super::names(&CertificateDer::from(vec![1, 2, 3])).is_empty());
    }

    #[test]
    fn dates_are_those_in_the_certificate() {
        let certificate = certificate(&["a.example"], |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        });
        let validity = Validity::of(&certificate).unwrap();
        let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!((seconds(validity.not_before), seconds(validity.not_after)), (1_577_836_800, 1_609_459_200));
        assert!(!validity.holds_at(SystemTime::now()));
        assert!(validity.holds_at(validity.not_after));
    }
}
