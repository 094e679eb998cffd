//! A listener's trust in proxies in front, and the fields that it sends to backends: `Forwarded`
//! and its like, `Via`, the PROXY protocol.

use std::net::IpAddr;

use ipnet::IpNet;
use plimsoll::address::UNIX;
use plimsoll_config::{Choice, Flaw, Format, quoted, text};

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

pub(super) const FORWARDED: Choice<Forwarded> = Choice {
    noun: "a way to name the client",
    names: &[
        ("off", Forwarded::Off),
        ("x-forwarded", Forwarded::XForwarded),
        ("rfc7239", Forwarded::Rfc7239),
        ("both", Forwarded::Both),
    ],
};

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

pub(super) const PROXY_PROTOCOL: Choice<ProxyProtocol> = Choice {
    noun: "a version of the PROXY protocol",
    names: &[("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2), ("any", ProxyProtocol::Any)],
};

/// The name of a listener in `Via` whose file names none.
pub(super) const DEFAULT_VIA: &str = "plimsoll";

/// The name that the proxy goes by in `Via`: a token (RFC 9110, 5.6.2), the form of a pseudonym.
pub(super) const PSEUDONYM: Format<String> = Format {
    read: |v| {
        let name = text(v, "a name", "a name in quotes, such as \"edge-1\"")?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            let help = "write letters, digits, \"-\", \"_\" and \".\", such as \"edge-1\"; \"off\" for no Via";
            return Err(Flaw::new(format!("\"{name}\" is not a name for Via"), help));
        }
        Ok(name.to_owned())
    },
    print: |name| quoted(name),
};

/// Proxies in front that may name the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedProxy {
    /// Addresses: one, or all that begin alike.
    Network(IpNet),
    /// All clients of a Unix socket: its mode says which users that are.
    Unix,
}

impl TrustedProxy {
    /// The addresses; `None` for Unix sockets.
    #[must_use]
    pub fn network(&self) -> Option<IpNet> {
        match self {
            Self::Network(network) => Some(*network),
            Self::Unix => None,
        }
    }
}

pub(super) const TRUSTED_PROXY: Format<TrustedProxy> = Format {
    read: |v| trusted_proxy(text(v, "a network", "a network in quotes, such as \"10.0.0.0/8\"")?),
    print: |proxy| match proxy {
        TrustedProxy::Unix => quoted(UNIX),
        TrustedProxy::Network(network) => {
            let is_single = network.prefix_len() == network.max_prefix_len();
            if is_single { quoted(network.addr()) } else { quoted(network) }
        }
    },
};

fn trusted_proxy(text: &str) -> Result<TrustedProxy, Flaw> {
    match text.strip_prefix(UNIX) {
        Some("") => Ok(TrustedProxy::Unix),
        Some(_) => {
            let reason = format!("\"{text}\" names one socket, and clients of Unix sockets have no names");
            Err(Flaw::new(reason, "write \"unix:\" for all clients of the listener's Unix socket"))
        }
        None => network(text).map(TrustedProxy::Network),
    }
}

fn network(text: &str) -> Result<IpNet, Flaw> {
    let help = "write an IP address or a network, such as \"10.0.0.0/8\" or \"fd00::/8\"";
    let flaw = || Flaw::new(format!("\"{text}\" is not a network"), help);
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse::<IpNet>().map_err(|_| flaw())?,
    };
    let whole = network.trunc();
    if whole.addr() != network.addr() {
        let reason = format!("\"{text}\" has a prefix shorter than its address");
        return Err(Flaw::new(reason, format!("write \"{whole}\", or \"{}\" for this address only", network.addr())));
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_printed_alike() {
        for text in ["10.0.0.0/8", "10.0.0.1", "fd00::/8", "::1", "0.0.0.0/0", "unix:"] {
            assert_eq!((TRUSTED_PROXY.print)(&trusted_proxy(text).unwrap()), format!("\"{text}\""));
        }
        assert_eq!((TRUSTED_PROXY.print)(&trusted_proxy("10.0.0.1/32").unwrap()), "\"10.0.0.1\"");
        assert!(trusted_proxy("unix:/run/a.sock").unwrap_err().help.contains("write \"unix:\""));
        for junk in ["", "10.0.0.0/33", "10.0.0", "web", "10.0.0.1/8", "10.0.0.0/-1"] {
            assert!(network(junk).is_err(), "{junk}");
        }
        assert_eq!(
            network("10.0.0.1/8").unwrap_err().help,
            "write \"10.0.0.0/8\", or \"10.0.0.1\" for this address only"
        );
        assert_eq!((PSEUDONYM.print)(&DEFAULT_VIA.to_owned()), "\"plimsoll\"");
    }
}
