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
use super::path::normalise;
use super::route::{HostPattern, is_path_text};

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

/// The beginning of a name by [`CustomerSource::Key`].
pub(crate) const KEY_KIND: &str = "key:";
/// The beginning of a name by [`CustomerSource::Host`].
pub(crate) const HOST_KIND: &str = "host:";
/// The beginning of a name by [`CustomerSource::PathSegment`].
pub(crate) const PATH_KIND: &str = "path:";

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

/// The mistake in the name of a customer in the file, where customers come from these sources; `None`
/// for the name of a customer that may come.
pub(super) fn name_flaw(name: &str, sources: &[CustomerSource]) -> Option<Flaw> {
    let (mut is_any, mut forms) = (sources.is_empty(), Vec::new());
    for source in sources {
        let (form, checked) = match source {
            // These may have any name, and other sources as well.
            CustomerSource::Header(_) | CustomerSource::Certificate => {
                is_any = true;
                continue;
            }
            CustomerSource::Address => ("\"192.0.2.1\" or \"2001:db8::/64\"", of_address(name)),
            CustomerSource::Host => ("\"host:shop.example\"", name.strip_prefix(HOST_KIND).map(host_flaw)),
            CustomerSource::PathSegment(_) => ("\"path:acme\"", name.strip_prefix(PATH_KIND).map(segment_flaw)),
            CustomerSource::Key(_) => ("\"key:0123456789abcdef\"", name.strip_prefix(KEY_KIND).map(hash_flaw)),
        };
        if let Some(flaw) = checked {
            return flaw;
        }
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    let flaw = || {
        let reason = format!("no customer has the name \"{name}\" with the sources of this file");
        Flaw::new(reason, format!("write a name such as {}", forms.join(" or ")))
    };
    (!is_any).then(flaw)
}

/// `None` for a name that is meant as no address; else its flaw, if it has one.
fn of_address(name: &str) -> Option<Option<Flaw>> {
    is_address(name).then(|| address_flaw(name))
}

fn host_flaw(host: &str) -> Option<Flaw> {
    match HostPattern::parse(host) {
        Ok(HostPattern::Exact(known)) if known == host => None,
        Ok(HostPattern::Exact(known)) => {
            let help = format!("write \"{HOST_KIND}{known}\"");
            Some(Flaw::new(format!("\"{host}\" is not how requests name this host"), help))
        }
        _ => {
            let help = "write \"host:shop.example\", without a port";
            Some(Flaw::new(format!("\"{host}\" is not the host of a request"), help))
        }
    }
}

fn segment_flaw(segment: &str) -> Option<Flaw> {
    let path = format!("/{segment}");
    let is_one = !segment.is_empty() && !segment.contains('/') && is_path_text(&path);
    if is_one && normalise(&path).text == path {
        return None;
    }
    let help = "write \"path:acme\" for the path /acme/..., in its normal form";
    Some(Flaw::new(format!("\"{segment}\" is not a segment of a path in normal form"), help))
}

fn hash_flaw(hash: &str) -> Option<Flaw> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let help = "write key: and the 16 digits of: printf %s KEY | sha256sum | cut -c-16";
    let is_hash = hash.len() == 16 && hash.bytes().all(is_digit);
    (!is_hash).then(|| Flaw::new(format!("\"{hash}\" is not the beginning of a hash"), help))
}

/// Whether `name` is an address or a network, in any form.
fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok() || name.parse::<IpNet>().is_ok()
}

/// The mistake in the name of a customer that is meant as an address; `None` for the name of an
/// address in the form that requests have, and for names that are no addresses.
fn address_flaw(name: &str) -> Option<Flaw> {
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
    fn name_has_the_form_of_a_source_of_the_file() {
        let key = CustomerSource::Key(HeaderName::from_static("x-api-key"));
        let header = CustomerSource::Header(HeaderName::from_static("x-customer"));
        let strangers =
            [key, CustomerSource::Host, CustomerSource::PathSegment(NonZeroU32::MIN), CustomerSource::Address];
        for good in ["key:f7e7c36e458e80e6", "host:shop.example", "host:[::1]", "path:acme", "path:a%20b", "192.0.2.1"]
        {
            assert!(name_flaw(good, &strangers).is_none(), "{good}");
            assert!(name_flaw(good, &[CustomerSource::Certificate]).is_none(), "{good}");
        }
        for (bad, help) in [
            ("acme", "write a name such as \"key:"),
            ("key-f7e7c36e458e80e6", "write a name such as \"key:"),
            ("key:F7E7C36E458E80E6", "sha256sum"),
            ("key:secret", "sha256sum"),
            ("host:Shop.Example", "write \"host:shop.example\""),
            ("host:a:80", "without a port"),
            ("path:", "normal form"),
            ("path:a/b", "normal form"),
            ("path:%61", "normal form"),
            ("2001:db8::1", "write \"2001:db8::/64\""),
        ] {
            let flaw = name_flaw(bad, &strangers).expect(bad);
            assert!(flaw.help.contains(help), "{bad}: {}", flaw.help);
        }
        // A trusted sender names customers at will, yet not in a form that another source writes.
        let trusted = [&strangers[..], &[header]].concat();
        assert!(name_flaw("acme", &trusted).is_none() && name_flaw("path:a/b", &trusted).is_some());
        assert!(name_flaw("acme", &[]).is_none());
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
