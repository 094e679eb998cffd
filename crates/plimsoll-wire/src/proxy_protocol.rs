//! The PROXY protocol: a header at the start of a connection, with the addresses of the client.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, both versions. The bytes after
//! the header are the client's, so a reader must take the header and no byte more. [`parse`] gets
//! the bytes read so far. It says that all belong to the header, or where the header ends. It fails
//! at the first byte that cannot be part of a header: after a wrong guess, the rest would be taken
//! for client data.
//!
//! ```text
//! version 1   PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n          at most 107 bytes
//! version 2   \r\n\r\n\0\r\nQUIT\n  0x21  0x11  length(2)  addresses, then TLVs
//! ```
//!
//! Type-length-value fields of version 2 are skipped. A header may state that the connection is the
//! sender's own (`LOCAL`, a health check), or that its client is not known (`UNKNOWN`). Both have
//! no addresses, and those of the socket count.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a header of version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// What a header of version 1 begins with.
const WORD: &[u8; 6] = b"PROXY ";
/// The longest header of version 1, as the specification counts it.
const MAX_TEXT: usize = 107;
/// The bytes of a version 2 header before its addresses.
const FIXED: usize = 16;
/// The longest rest of a version 2 header that is read. The specification allows 64 KiB; balancers that send all that they
/// know, certificates' names included, send some hundred bytes.
const MAX_REST: usize = 4096;

/// The longest header that is read.
pub const MAX_LENGTH: usize = FIXED + MAX_REST;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// In text.
    V1,
    /// In binary.
    V2,
}

/// The addresses of a connection that a proxy passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client's address.
    pub source: SocketAddr,
    /// The address that the client connected to.
    pub destination: SocketAddr,
}

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// All bytes belong to a header that is incomplete.
    Partial,
    /// The bytes begin with a complete header.
    Whole {
        /// Its version.
        version: Version,
        /// Its length in bytes.
        length: usize,
        /// The addresses; `None` for the sender's own connection or an unknown client.
        addresses: Option<Addresses>,
    },
}

/// The reason why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The signature is missing.
    NoHeader,
    /// The header is too long.
    TooLong,
    /// The header breaks the specification.
    Syntax,
    /// The header is for another protocol than TCP.
    NotTcp,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoHeader => "no PROXY protocol header",
            Self::TooLong => "PROXY protocol header too long",
            Self::Syntax => "malformed PROXY protocol header",
            Self::NotTcp => "PROXY protocol header for another protocol than TCP",
        })
    }
}

impl std::error::Error for Malformed {}

/// Parses the header at the front of `bytes`.
///
/// # Errors
/// If the bytes cannot become a valid header.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let begins_as = |prefix: &[u8]| {
        let length = bytes.len().min(prefix.len());
        bytes[..length] == prefix[..length]
    };
    if begins_as(WORD) {
        parse_text(bytes)
    } else if begins_as(SIGNATURE) {
        parse_binary(bytes)
    } else {
        Err(Malformed::NoHeader)
    }
}

fn parse_text(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let reach = &bytes[..bytes.len().min(MAX_TEXT)];
    let Some(end) = reach.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return if reach.len() == MAX_TEXT { Err(Malformed::TooLong) } else { Ok(Parsed::Partial) };
    };
    match reach.get(end..end + 2) {
        Some(b"\r\n") => {}
        None if reach[end] == b'\r' && reach.len() < MAX_TEXT => return Ok(Parsed::Partial),
        _ => return Err(Malformed::Syntax),
    }
    let line = std::str::from_utf8(&bytes[WORD.len()..end]).map_err(|_| Malformed::Syntax)?;
    let mut words = line.split(' ');
    let addresses = match words.next() {
        // What else it says is to be passed over.
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(text_addresses::<Ipv4Addr>(words)?),
        Some("TCP6") => Some(text_addresses::<Ipv6Addr>(words)?),
        _ => return Err(Malformed::Syntax),
    };
    Ok(Parsed::Whole { version: Version::V1, length: end + 2, addresses })
}

fn text_addresses<'t, A>(mut words: impl Iterator<Item = &'t str>) -> Result<Addresses, Malformed>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let mut next = || words.next().ok_or(Malformed::Syntax);
    let [source, destination, source_port, destination_port] = [next()?, next()?, next()?, next()?];
    let address = |ip: &str, port: &str| -> Result<SocketAddr, Malformed> {
        let ip: A = ip.parse().map_err(|_| Malformed::Syntax)?;
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && (port.len() == 1 || !port.starts_with('0'));
        let port = port.parse().ok().filter(|_| is_plain).ok_or(Malformed::Syntax)?;
        Ok(SocketAddr::new(ip.into(), port))
    };
    let addresses =
        Addresses { source: address(source, source_port)?, destination: address(destination, destination_port)? };
    if words.next().is_some() { Err(Malformed::Syntax) } else { Ok(addresses) }
}

fn parse_binary(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some(&command) = bytes.get(12) else { return Ok(Parsed::Partial) };
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed::Syntax),
    };
    let Some(fixed) = bytes.get(..FIXED) else { return Ok(Parsed::Partial) };
    let rest = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if rest > MAX_REST {
        return Err(Malformed::TooLong);
    }
    // A sender's own connection may say any family, which is to be passed over; else UNSPEC is 0x00, a UNIX stream 0x31.
    let size = match fixed[13] {
        _ if is_local => 0,
        0x00 | 0x31 => 0,
        0x11 => 12,
        0x21 => 36,
        _ => return Err(Malformed::NotTcp),
    };
    if rest < size {
        return Err(Malformed::Syntax);
    }
    let Some(body) = bytes.get(FIXED..FIXED + rest) else { return Ok(Parsed::Partial) };
    if size > 0 && !is_fields(&body[size..]) {
        return Err(Malformed::Syntax);
    }
    let addresses = match size {
        12 => Some(binary_addresses::<4>(body)),
        36 => Some(binary_addresses::<16>(body)),
        _ => None,
    };
    Ok(Parsed::Whole { version: Version::V2, length: FIXED + rest, addresses })
}

/// Whether `bytes` are fields, each with a byte for its type, two for its length, and as many as that says.
fn is_fields(mut bytes: &[u8]) -> bool {
    while let [_, high, low, rest @ ..] = bytes {
        match rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) {
            Some(next) => bytes = next,
            None => return false,
        }
    }
    bytes.is_empty()
}

/// Two addresses of `N` bytes, then two ports, which `body` is long enough for.
fn binary_addresses<const N: usize>(body: &[u8]) -> Addresses
where
    [u8; N]: Into<IpAddr>,
{
    let ip = |at: usize| -> IpAddr {
        let mut octets = [0; N];
        octets.copy_from_slice(&body[at..at + N]);
        octets.into()
    };
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    Addresses { source: SocketAddr::new(ip(0), port(2 * N)), destination: SocketAddr::new(ip(N), port(2 * N + 2)) }
}

/// A header with these addresses. Without any, it states that the connection is the sender's own.
///
/// Addresses of two families, as of an IPv4 client at a dual-stack socket, are written as IPv6.
#[must_use]
pub fn encode(version: Version, addresses: Option<Addresses>) -> Vec<u8> {
    let addresses = addresses.map(|Addresses { source, destination }| {
        let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
        let ports = [source.port(), destination.port()];
        match (from, to) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => (from, to, ports),
            _ => (IpAddr::V6(mapped(from)), IpAddr::V6(mapped(to)), ports),
        }
    });
    match version {
        Version::V1 => encode_text(addresses),
        Version::V2 => encode_binary(addresses),
    }
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

fn encode_text(addresses: Option<(IpAddr, IpAddr, [u16; 2])>) -> Vec<u8> {
    match addresses {
        None => b"PROXY UNKNOWN\r\n".to_vec(),
        Some((from, to, [from_port, to_port])) => {
            let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
            format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
        }
    }
}

fn encode_binary(addresses: Option<(IpAddr, IpAddr, [u16; 2])>) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    let Some((from, to, ports)) = addresses else {
        header.extend([0x20, 0x00, 0, 0]);
        return header;
    };
    header.extend(if from.is_ipv4() { [0x21, 0x11, 0, 12] } else { [0x21, 0x21, 0, 36] });
    for ip in [from, to] {
        match ip {
            IpAddr::V4(ip) => header.extend(ip.octets()),
            IpAddr::V6(ip) => header.extend(ip.octets()),
        }
    }
    header.extend(ports.into_iter().flat_map(u16::to_be_bytes));
    header
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(text: &[u8]) -> (usize, Option<(String, String)>) {
        match parse(text) {
            Ok(Parsed::Whole { length, addresses, .. }) => {
                (length, addresses.map(|both| (both.source.to_string(), both.destination.to_string())))
            }
            other => panic!("{other:?}"),
        }
    }

    fn pair(source: &str, destination: &str) -> Option<(String, String)> {
        Some((source.to_owned(), destination.to_owned()))
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    #[test]
    fn text_is_read_to_its_end_and_no_further() {
        let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n";
        let with_request = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(whole(&with_request), (header.len(), pair("192.0.2.7:56324", "198.51.100.1:443")));
        assert_eq!(whole(b"PROXY TCP6 2001:db8::7 ::1 0 65535\r\n").1, pair("[2001:db8::7]:0", "[::1]:65535"));
        assert_eq!(whole(b"PROXY UNKNOWN\r\nx"), (15, None));
        assert_eq!(whole(b"PROXY UNKNOWN ff::1 ff::2 1 2\r\n").1, None);
    }

    #[test]
    fn text_that_is_not_quite_right_is_refused() {
        for line in [
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 1\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 \r\n",
            "PROXY TCP4  192.0.2.7 198.51.100.1 56324 443\r\n",
            "PROXY TCP4 192.0.2.07 198.51.100.1 56324 443\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 056324 443\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 +1 443\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n",
            "PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\n",
            "PROXY TCP4 192.0.2.7\r198.51.100.1 1 2\r\n",
            "PROXY \r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(Malformed::Syntax), "{line:?}");
        }
        assert_eq!(parse(b"GET / HTTP/1.1\r\n"), Err(Malformed::NoHeader));
        assert_eq!(parse(b"PROXYTCP4"), Err(Malformed::NoHeader));
        assert_eq!(parse(b"proxy tcp4"), Err(Malformed::NoHeader));
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        assert_eq!(parse(long.as_bytes()), Err(Malformed::TooLong));
    }

    #[test]
    fn binary_addresses_are_read_and_what_follows_them_is_skipped() {
        let v4 = [192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 0x04, 1, 187];
        let with_tlvs = [&v4[..], &[4, 0, 3, 1, 2, 3]].concat();
        let header = binary(0x21, 0x11, &with_tlvs);
        assert_eq!(whole(&header), (16 + 18, pair("192.0.2.7:56324", "198.51.100.1:443")));
        let mut v6 = [0; 36];
        (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 3, 4);
        assert_eq!(whole(&binary(0x21, 0x21, &v6)).1, pair("[::1]:3", "[::2]:4"));
    }

    #[test]
    fn a_senders_own_connection_and_unknown_families_have_no_addresses() {
        for (command, family) in [(0x20, 0x00), (0x20, 0x11), (0x21, 0x00), (0x21, 0x31)] {
            assert_eq!(whole(&binary(command, family, &[1; 20])), (36, None));
        }
    }

    #[test]
    fn binary_that_is_not_quite_right_is_refused() {
        assert_eq!(parse(&binary(0x11, 0x11, &[0; 12])), Err(Malformed::Syntax));
        assert_eq!(parse(&binary(0x22, 0x11, &[0; 12])), Err(Malformed::Syntax));
        assert_eq!(parse(&binary(0x21, 0x11, &[0; 11])), Err(Malformed::Syntax));
        assert_eq!(parse(&binary(0x21, 0x11, &[[0; 12].as_slice(), &[4, 0]].concat())), Err(Malformed::Syntax));
        assert_eq!(parse(&binary(0x21, 0x11, &[[0; 12].as_slice(), &[4, 0, 2, 1]].concat())), Err(Malformed::Syntax));
        assert_eq!(parse(&binary(0x21, 0x12, &[0; 12])), Err(Malformed::NotTcp));
        assert_eq!(parse(&binary(0x21, 0x11, &[0; 5000])), Err(Malformed::TooLong));
        assert_eq!(parse(b"\r\n\r\nGET / HTTP/1.1"), Err(Malformed::NoHeader));
    }

    fn address() -> impl Strategy<Value = SocketAddr> {
        let v4 = any::<([u8; 4], u16)>().prop_map(|(ip, port)| SocketAddr::new(ip.into(), port));
        let v6 = any::<([u8; 16], u16)>().prop_map(|(ip, port)| SocketAddr::new(ip.into(), port));
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_and_every_part_of_it_is_partial(
            source in address(), destination in address(), known in any::<bool>(), text in any::<bool>(), tail in any::<Vec<u8>>(),
        ) {
            let version = if text { Version::V1 } else { Version::V2 };
            let header = encode(version, known.then_some(Addresses { source, destination }));
            let bytes = [&header[..], &tail].concat();
            let Ok(Parsed::Whole { version: read_version, length, addresses }) = parse(&bytes) else {
                panic!("{bytes:?}");
            };
            prop_assert_eq!((read_version, length), (version, header.len()));
            let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
            let expected = known.then(|| (canonical(source), canonical(destination)));
            prop_assert_eq!(addresses.map(|both| (canonical(both.source), canonical(both.destination))), expected);
            for end in 0..header.len() {
                prop_assert_eq!(parse(&header[..end]), Ok(Parsed::Partial));
            }
        }

        #[test]
        fn no_bytes_make_the_reader_panic_or_read_too_far(junk in any::<Vec<u8>>(), signed in 0..3_u8) {
            let front: &[u8] = match signed {
                0 => b"",
                1 => b"PROXY TCP4 ",
                _ => &[13, 10, 13, 10, 0, 13, 10, 81, 85, 73, 84, 10, 0x21],
            };
            let bytes = [front, &junk].concat();
            match parse(&bytes) {
                Ok(Parsed::Whole { length, .. }) => prop_assert!(length <= bytes.len() && length <= MAX_LENGTH),
                Ok(Parsed::Partial) => prop_assert!(bytes.len() < MAX_LENGTH),
                Err(_) => {}
            }
        }
    }
}
