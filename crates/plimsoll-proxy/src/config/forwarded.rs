//! A listener's trust in proxies in front, and the fields that it sends to backends: `Forwarded`
//! and its like, `Via`, the PROXY protocol.

use std::net::IpAddr;

use ipnet::IpNet;
use plimsoll_config::{Flaw, choice, quoted, text, values};

/// The fields that tell backends of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarded {
    /// In none.
    Off,
    /// `X-Forwarded-For`, `-Proto`, `-Host` and `-Port`, which nearly all software reads.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Rfc7239,
    /// In all of these.
    Both,
}

impl Forwarded {
    const ALL: [(&'static str, Self); 4] =
        [("off", Self::Off), ("x-forwarded", Self::XForwarded), ("rfc7239", Self::Rfc7239), ("both", Self::Both)];
}

/// Which header of the PROXY protocol connections begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Version 1, in text.
    V1,
    /// Version 2, in binary.
    V2,
    /// Either.
    Any,
}

impl ProxyProtocol {
    const ALL: [(&'static str, Self); 3] = [("v1", Self::V1), ("v2", Self::V2), ("any", Self::Any)];
}

/// The name that the proxy goes by in `Via`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pseudonym(String);

impl Pseudonym {
    /// That of a listener whose file names none.
    pub(super) fn of_product() -> Self {
        Self("plimsoll".to_owned())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(name: &str) -> Result<Self, Flaw> {
        // A token (RFC 9110, 5.6.2), the form of a pseudonym.
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            let help = "write letters, digits, \"-\", \"_\" and \".\", such as \"edge-1\"; \"off\" for no Via";
            return Err(Flaw::new(format!("\"{name}\" is not a name for Via"), help));
        }
        Ok(Self(name.to_owned()))
    }
}

/// Addresses: one, or all that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// The addresses.
    #[must_use]
    pub fn addresses(&self) -> IpNet {
        self.0
    }

    fn parse(text: &str) -> Result<Self, Flaw> {
        let help = "write an IP address or a network, such as \"10.0.0.0/8\" or \"fd00::/8\"";
        let flaw = || Flaw::new(format!("\"{text}\" is not a network"), help);
        let network = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => text.parse::<IpNet>().map_err(|_| flaw())?,
        };
        let whole = network.trunc();
        if whole.addr() != network.addr() {
            let reason = format!("\"{text}\" has a prefix shorter than its address");
            return Err(Flaw::new(
                reason,
                format!("write \"{whole}\", or \"{}\" for this address only", network.addr()),
            ));
        }
        Ok(Self(network))
    }

    fn written(self) -> String {
        let is_single = self.0.prefix_len() == self.0.max_prefix_len();
        if is_single { quoted(self.0.addr()) } else { quoted(self.0) }
    }
}

fn name_of<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> String {
    quoted(all.iter().find(|(_, known)| known == value).expect("all are listed").0)
}

values! {
    Forwarded: |v| choice(v, "a way to name the client", &Self::ALL), |way| name_of(&Forwarded::ALL, way);
    ProxyProtocol: |v| choice(v, "a version of the PROXY protocol", &Self::ALL), |version| name_of(&ProxyProtocol::ALL, version);
    Pseudonym: |v| Self::parse(text(v, "a name", "a name in quotes, such as \"edge-1\"")?), |name| quoted(&name.0);
    Network: |v| Self::parse(text(v, "a network", "a network in quotes, such as \"10.0.0.0/8\"")?), |network| network.written();
}

#[cfg(test)]
mod tests {
    use plimsoll_config::Value;

    use super::*;

    #[test]
    fn networks_are_read_and_printed_alike() {
        for text in ["10.0.0.0/8", "10.0.0.1", "fd00::/8", "::1", "0.0.0.0/0"] {
            assert_eq!(Network::parse(text).unwrap().written(), format!("\"{text}\""));
        }
        assert_eq!(Network::parse("10.0.0.1/32").unwrap().written(), "\"10.0.0.1\"");
        for junk in ["", "10.0.0.0/33", "10.0.0", "web", "10.0.0.1/8", "10.0.0.0/-1"] {
            assert!(Network::parse(junk).is_err(), "{junk}");
        }
        assert_eq!(
            Network::parse("10.0.0.1/8").unwrap_err().help,
            "write \"10.0.0.0/8\", or \"10.0.0.1\" for this address only"
        );
        assert_eq!(Value::print(&Pseudonym::of_product()), "\"plimsoll\"");
    }
}
