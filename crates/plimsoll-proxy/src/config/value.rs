//! How values are written that only the proxy has: addresses to listen at, methods.
//!
//! The types are others', and so is the trait; each is read through a type of this crate that wraps it.

use std::net::{Ipv4Addr, SocketAddr};

use http::Method;
use plimsoll_config::{Flaw, Visitor, quoted, text, values};

/// An address to listen at. `:8080` is short for all addresses of IPv4.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, Flaw> {
    let help = "write an IP address and a port, such as \"127.0.0.1:8080\", \"0.0.0.0:8080\" for all addresses, or \"[::1]:8080\"";
    let parsed = match text.strip_prefix(':') {
        Some(port) => port.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        None => text.replacen("localhost:", "127.0.0.1:", 1).parse().ok(),
    };
    parsed.ok_or_else(|| Flaw::new(format!("\"{text}\" is not an address to listen at"), help))
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

/// An address to listen at, as the file writes it.
pub(super) struct ListenAddress(pub(super) SocketAddr);

/// A method, as the file writes it.
struct MethodName(Method);

values! {
    ListenAddress: |v| listen_address(text(v, "an address", "an address in quotes, such as \"127.0.0.1:8080\"")?).map(Self), |address| quoted(address.0);
    MethodName: |v| method(text(v, "a method", "a method in quotes, such as \"GET\"")?).map(Self), |method| quoted(&method.0);
}

/// Shows a list of methods.
pub(super) fn methods<V: Visitor>(visitor: &mut V, key: &'static str, methods: &mut Vec<Method>) {
    let mut names: Vec<MethodName> = methods.drain(..).map(MethodName).collect();
    visitor.value(key, &mut names);
    methods.extend(names.into_iter().map(|name| name.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_may_leave_out_the_host() {
        assert_eq!(listen_address(":80").unwrap().to_string(), "0.0.0.0:80");
        assert_eq!(listen_address("localhost:80").unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(listen_address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for junk in ["", "80", "example.com:80", ":99999", "1.2.3.4"] {
            assert!(listen_address(junk).is_err(), "{junk}");
        }
    }
}
