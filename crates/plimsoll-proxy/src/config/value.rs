//! Codecs of values that only the proxy has: addresses to listen at, methods.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Method;
use plimsoll::address::Address;
use plimsoll_config::{DeValue, Flaw, Format, quoted, text};
use plimsoll_tls_config::is_host_name;

use super::unix_socket;

/// An address for a listener: of IP, or a Unix socket.
pub(super) fn listener_address(text: &str) -> Result<Address, Flaw> {
    if unix_socket::is_meant(text) { unix_socket::read(text) } else { listen_address(text).map(Address::Inet) }
}

/// An address to listen at. `:8080` is short for all addresses of IPv4.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, Flaw> {
    read_listen_address(text).ok_or_else(|| {
        let reason = format!("\"{text}\" is not an address to listen at");
        listen_flaw(text).unwrap_or_else(|help| Flaw::new(reason, help))
    })
}

fn read_listen_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix(':') {
        Some(port) => port.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        None => text.replacen("localhost:", "127.0.0.1:", 1).parse().ok(),
    }
}

/// The mistake in `text`, which is no address to listen at, or the help if it is none of the usual
/// ones.
fn listen_flaw(text: &str) -> Result<Flaw, String> {
    let all =
        |port: &str| format!("write \":{port}\" for all addresses, or \"127.0.0.1:{port}\" for this machine only");
    let port = |text: &str| text.parse::<u16>().is_ok().then(|| text.to_owned());
    if let Some(port) = text.strip_prefix("*:").or(Some(text)).and_then(port) {
        return Err(all(&port));
    }
    if unix_socket::is_meant(text) {
        let help = "write \"127.0.0.1:9900\" for this machine only; listeners may be at Unix sockets";
        return Ok(Flaw::new(format!("\"{text}\" is a Unix socket, and this listens at a TCP port only"), help));
    }
    if let Some((_, rest)) = text.split_once("://") {
        let is_tls = text.starts_with("https");
        let address = rest.split('/').next().unwrap_or(rest);
        let tls = if is_tls { ", and add [listeners.tls] for TLS" } else { "" };
        let help = match read_listen_address(address) {
            Some(address) => format!("write \"{address}\"{tls}"),
            None => format!("{}{tls}", all(if is_tls { "443" } else { "80" })),
        };
        return Ok(Flaw::new(format!("\"{text}\" is a URL, not an address"), help));
    }
    if let Some((address, options)) = text.split_once(' ')
        && let Some(address) = read_listen_address(address)
    {
        let tls = if options.contains("ssl") { ", and add [listeners.tls] for TLS" } else { "" };
        return Err(format!("write \"{address}\"{tls}"));
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        let front = text.rsplit_once(':').and_then(|(front, port)| Some((front.parse::<Ipv6Addr>().ok()?, port)));
        let address = match front {
            Some((front, port)) if port.parse::<u16>().is_ok() => format!("[{front}]:{port}"),
            _ => SocketAddr::new(ip, 8080).to_string(),
        };
        return Err(format!("write \"{address}\""));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if is_host_name(host) && port.parse::<u16>().is_ok() => Ok(Flaw::new(
            format!("\"{host}\" is a name, and listeners are at addresses of this machine"),
            format!("{}; routes choose by host", all(port)),
        )),
        _ => Err("write an IP address and a port, such as \"127.0.0.1:8080\", \"0.0.0.0:8080\" for all addresses, or \"[::1]:8080\""
            .to_owned()),
    }
}

fn method(text: &str) -> Result<Method, Flaw> {
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err(Flaw::new(
            format!("\"{text}\" is not a method: methods are case-sensitive"),
            format!("write \"{}\"", text.to_uppercase()),
        ));
    }
    Method::from_bytes(text.as_bytes())
        .map_err(|_| Flaw::new(format!("\"{text}\" is not a method"), "write a method such as \"GET\" or \"POST\""))
}

/// An address to listen at.
pub(super) const LISTEN_ADDRESS: Format<SocketAddr> = Format {
    read: |v| match v {
        DeValue::Integer(port) => Err(Flaw::new(
            format!("expected an address, found the number {port}"),
            listen_address(port.as_str()).map_or_else(|flaw| flaw.help, |_| String::new()),
        )),
        v => listen_address(text(v, "an address", "an address in quotes, such as \"127.0.0.1:8080\"")?),
    },
    print: |address| quoted(address),
};

/// An address of a listener.
pub(super) const LISTENER_ADDRESS: Format<Address> = Format {
    read: |v| match v {
        DeValue::Integer(_) => (LISTEN_ADDRESS.read)(v).map(Address::Inet),
        v => listener_address(text(v, "an address", "an address in quotes, such as \"127.0.0.1:8080\"")?),
    },
    print: |address| quoted(address),
};

/// A method.
pub(super) const METHOD: Format<Method> = Format {
    read: |v| method(text(v, "a method", "a method in quotes, such as \"GET\"")?),
    print: |method| quoted(method),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_may_leave_out_the_host() {
        assert_eq!(listen_address(":80").unwrap().to_string(), "0.0.0.0:80");
        assert_eq!(listen_address("localhost:80").unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(listen_address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for junk in ["", "80", "example.com:80", ":99999", "1.2.3.4", "[::]", "*:80", "/run/a.sock"] {
            assert!(listen_address(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn listener_may_be_at_a_unix_socket() {
        assert_eq!(listener_address("unix:/run/p.sock").unwrap().to_string(), "unix:/run/p.sock");
        assert_eq!(listener_address(":80").unwrap().to_string(), "0.0.0.0:80");
        assert!(listener_address("/run/p.sock").unwrap_err().help.contains("\"unix:/run/p.sock\""));
    }

    #[test]
    fn text_that_is_no_listen_address_gets_help_with_a_correct_one() {
        for (text, reason, help) in [
            ("8080", "is not an address", "write \":8080\" for all addresses, or \"127.0.0.1:8080\""),
            ("*:8080", "is not an address", "write \":8080\" for all addresses"),
            ("0.0.0.0", "is not an address", "write \"0.0.0.0:8080\""),
            ("[::]", "is not an address", "write \"[::]:8080\""),
            ("::1:8080", "is not an address", "write \"[::1]:8080\""),
            ("example.com:8080", "is a name", "write \":8080\" for all addresses"),
            ("http://0.0.0.0:8080", "is a URL", "write \"0.0.0.0:8080\""),
            ("https://example.com", "is a URL", "write \":443\" for all addresses"),
            ("0.0.0.0:443 ssl", "is not an address", "write \"0.0.0.0:443\", and add [listeners.tls]"),
            ("unix:/run/p.sock", "is a Unix socket", "write \"127.0.0.1:9900\""),
            ("a b", "is not an address", "write an IP address and a port"),
        ] {
            let flaw = listen_address(text).unwrap_err();
            assert!(flaw.reason.contains(reason) && flaw.help.contains(help), "{text}: {}; {}", flaw.reason, flaw.help);
        }
    }
}
