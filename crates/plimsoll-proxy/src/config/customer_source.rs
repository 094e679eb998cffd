//! Where the customer of a request comes from, for each listener.
//!
//! ```toml
//! customer = "address"                        # the client's address
//! customer = { header = "x-customer" }        # a field; the same as customer_header
//! customer = ["certificate", "address"]       # the first that the request has
//! ```
//!
//! Only `header` is a claim that its sender is trusted with. The other facts are known of any
//! stranger. Strangers choose host, path and key, so these tell tenants apart, and not clients.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;

use http::HeaderName;
use ipnet::IpNet;
use plimsoll_config::{Codec, DeTable, DeValue, Flaw, Reading, Spanned, help_for_name, kind, quoted, whole};

use super::criticality::FIELD_NAME;

/// A fact about a request that names its customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomerSource {
    /// The value of a field. Its senders are trusted with it.
    Header(HeaderName),
    /// A secret in a field, such as an API key: its customer is named by a hash of it.
    Key(HeaderName),
    /// The client's address.
    Address,
    /// The first name in the client's certificate.
    Certificate,
    /// The host that the request is for.
    Host,
    /// This segment of the path, counted from 1.
    PathSegment(NonZeroU32),
}

impl CustomerSource {
    /// The field whose senders are trusted with it.
    pub(crate) fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            _ => None,
        }
    }

    /// The field that it is in.
    pub(crate) fn field(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) | Self::Key(name) => Some(name),
            Self::Address | Self::Certificate | Self::Host | Self::PathSegment(_) => None,
        }
    }

    /// Whether any client can choose a new name for each of its requests.
    pub(crate) fn can_be_invented(&self) -> bool {
        match self {
            Self::Key(_) | Self::Host | Self::PathSegment(_) => true,
            Self::Header(_) | Self::Address | Self::Certificate => false,
        }
    }
}

const WORDS: [(&str, CustomerSource); 3] = [
    ("address", CustomerSource::Address),
    ("certificate", CustomerSource::Certificate),
    ("host", CustomerSource::Host),
];
const KEYS: [&str; 3] = ["header", "key", "path_segment"];
const HELP: &str = "write \"address\", \"certificate\", \"host\", { header = \"x-customer\" }, { key = \"x-api-key\" } or \
                    { path_segment = 1 }";

/// One source, or a list of them.
pub(super) struct CustomerSources;

impl Codec<Vec<CustomerSource>> for CustomerSources {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Vec<CustomerSource>> {
        let DeValue::Array(items) = value.get_ref() else {
            return reading.take(source(value.get_ref())).map(|source| vec![source]);
        };
        let mut sources = Vec::new();
        for (i, item) in items.iter().enumerate() {
            sources
                .extend(reading.within(&format!("[{i}]"), item.span(), |reading| reading.take(source(item.get_ref()))));
        }
        Some(sources)
    }

    fn print(&self, sources: &Vec<CustomerSource>) -> Option<String> {
        let printed: Vec<String> = sources.iter().map(ToString::to_string).collect();
        match printed.as_slice() {
            [] => None,
            [source] => Some(source.clone()),
            list => Some(format!("[{}]", list.join(", "))),
        }
    }
}

/// As it is written in the file.
impl fmt::Display for CustomerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "{{ header = {} }}", quoted(name)),
            Self::Key(name) => write!(f, "{{ key = {} }}", quoted(name)),
            Self::PathSegment(number) => write!(f, "{{ path_segment = {number} }}"),
            Self::Address | Self::Certificate | Self::Host => {
                let (word, _) = WORDS.iter().find(|(_, source)| source == self).expect("all words are listed");
                f.write_str(&quoted(word))
            }
        }
    }
}

fn source(value: &DeValue<'_>) -> Result<CustomerSource, Flaw> {
    match value {
        DeValue::String(word) => of_word(word),
        DeValue::Table(table) => of_table(table),
        other => Err(Flaw::new(format!("expected a source of customers, found {}", kind(other)), HELP)),
    }
}

fn of_word(word: &str) -> Result<CustomerSource, Flaw> {
    if let Some((_, source)) = WORDS.iter().find(|(known, _)| *known == word) {
        return Ok(source.clone());
    }
    let lower = word.to_ascii_lowercase().replace(['-', '$', '%'], "_");
    let help = match lower.trim_start_matches('_') {
        "ip" | "src" | "source" | "source_ip" | "client" | "client_ip" | "remote_addr" | "remote_address"
        | "binary_remote_addr" | "peer" => {
            "write \"address\": behind trusted_proxies it is the client's own".to_owned()
        }
        "san" | "cert" | "cn" | "subject" | "tls" | "ssl_client_s_dn" => "write \"certificate\"".to_owned(),
        "path" | "uri" | "path_segment" => "write { path_segment = 1 } for the first segment".to_owned(),
        "key" | "api_key" => "write { key = \"x-api-key\" } for a secret in a field".to_owned(),
        "header" => "write { header = \"x-customer\" }".to_owned(),
        _ if word.contains('-') => format!("write {{ header = \"{word}\" }} for the value of a field"),
        _ => HELP.to_owned(),
    };
    Err(Flaw::new(format!("\"{word}\" is not a source of customers"), help))
}

fn of_table(table: &DeTable<'_>) -> Result<CustomerSource, Flaw> {
    let mut settings = table.iter();
    let (Some((key, value)), None) = (settings.next(), settings.next()) else {
        return Err(Flaw::new("a source of customers is one setting", HELP));
    };
    let field = || (FIELD_NAME.read)(value.get_ref());
    match &**key.get_ref() {
        "header" => field().map(CustomerSource::Header),
        "key" => field().map(CustomerSource::Key),
        "path_segment" => {
            let number = whole::<u32>(value.get_ref(), 1)?;
            Ok(CustomerSource::PathSegment(NonZeroU32::new(number).expect("it is at least 1")))
        }
        other => Err(Flaw::new(format!("unknown source of customers \"{other}\""), help_for_name(other, KEYS))),
    }
}

/// The part of an address that its client cannot choose: an IPv4 address, or the first 64 bits of an
/// IPv6 address (RFC 6177).
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

/// The name of the customer at an address: `192.0.2.1`, or `2001:db8:1:2::/64`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressName(IpAddr);

impl AddressName {
    /// The longest name, in bytes.
    pub(crate) const MAX_LEN: usize = "ffff:ffff:ffff:ffff::/64".len();

    pub(crate) fn new(address: IpAddr) -> Self {
        Self(client_network(address))
    }
}

impl fmt::Display for AddressName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

/// Whether `name` is an address or a network, in any form.
pub(super) fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok() || name.parse::<IpNet>().is_ok()
}

/// The mistake in the name of a customer that is meant as an address; `None` for the name of an
/// address in the form that requests have, and for names that are no addresses.
pub(super) fn address_flaw(name: &str) -> Option<Flaw> {
    let network = match (name.parse::<IpAddr>(), name.parse::<IpNet>()) {
        (Ok(address), _) => IpNet::from(address),
        (_, Ok(network)) => network,
        _ => return None,
    };
    let own = AddressName::new(network.addr());
    if own.to_string() == name {
        return None;
    }
    let (length, is_v6) = (network.prefix_len(), matches!(network.addr().to_canonical(), IpAddr::V6(Ipv6Addr { .. })));
    let least = if is_v6 { 64 } else { network.max_prefix_len() };
    if length < least {
        let reason = format!("\"{name}\" is a network, and each address in it is a customer of its own");
        let help = format!("write a table for each, such as \"{own}\", or [other_customers] for all");
        return Some(Flaw::new(reason, help));
    }
    Some(Flaw::new(format!("\"{name}\" is not how requests name this address"), format!("write \"{own}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_named_by_the_part_that_clients_cannot_choose() {
        let name = |address: &str| AddressName::new(address.parse().unwrap()).to_string();
        assert_eq!(name("192.0.2.1"), "192.0.2.1");
        assert_eq!(name("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(name("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(name("ffff:ffff:ffff:ffff:1::").len(), AddressName::MAX_LEN);
    }

    #[test]
    fn address_in_another_form_is_a_mistake_with_its_form() {
        for good in ["192.0.2.1", "2001:db8::/64", "acme", "10.0", "shop.example"] {
            assert!(address_flaw(good).is_none(), "{good}");
        }
        let help = |name| address_flaw(name).expect(name).help;
        assert_eq!(help("::ffff:192.0.2.1"), "write \"192.0.2.1\"");
        assert_eq!(help("192.0.2.1/32"), "write \"192.0.2.1\"");
        assert_eq!(help("2001:db8::1"), "write \"2001:db8::/64\"");
        assert_eq!(help("2001:0db8::/64"), "write \"2001:db8::/64\"");
        for network in ["10.0.0.0/8", "2001:db8::/32"] {
            assert!(help(network).contains("[other_customers]"), "{network}");
        }
    }
}
