//! Help for a text that is not the address of a backend.
//!
//! The parser knows only that a text is no host with a port. The mistake behind it is nearly always
//! one of a few: a network, a URL, a port alone, IPv6 without brackets, several addresses in one
//! text, or the syntax of another proxy. Each gets the text to write, made from the one given.

use std::net::{IpAddr, Ipv6Addr};

use plimsoll_config::Flaw;
use plimsoll_tls_config::is_host_name;

use super::address::BackendAddress;

/// A port for examples, where none is known.
const PORT: &str = "8080";

/// The mistake in `text`, which is no address.
pub(super) fn flaw(text: &str) -> Flaw {
    let known = [empty, variable, unix_socket, url, list, network, range, with_options, port_alone, ipv6, any, path];
    known.iter().find_map(|recognise| recognise(text)).unwrap_or_else(|| other(text))
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_address(text: &str) -> bool {
    BackendAddress::read_text(text).is_some()
}

fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

fn empty(text: &str) -> Option<Flaw> {
    text.trim().is_empty().then(|| Flaw::new("is empty", "write host and port, such as \"10.0.0.1:8080\""))
}

fn variable(text: &str) -> Option<Flaw> {
    let help = "write the address itself: variables are not replaced; envsubst can make the file from a template";
    text.contains(['$', '{']).then(|| Flaw::new(format!("\"{text}\" has a variable"), help))
}

fn unix_socket(text: &str) -> Option<Flaw> {
    let is_one = text.starts_with("unix:") || text.starts_with("unix@") || text.starts_with(['/', '@']);
    let help = "have the server listen at a TCP port, and write \"127.0.0.1:8080\"";
    is_one.then(|| Flaw::new(format!("\"{text}\" is a Unix socket, and this server is reached by TCP only"), help))
}

fn url(text: &str) -> Option<Flaw> {
    let (scheme, rest) = text.split_once("://")?;
    // `dns:///name` has an empty authority.
    let rest = rest.trim_start_matches('/');
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (tls, port) = match scheme {
        "https" | "wss" | "h2" | "grpcs" => (true, "443"),
        "http" | "ws" | "h2c" => (false, "80"),
        _ => (false, PORT),
    };
    let address = with_port(authority, port);
    let mut help = format!("write \"{address}\"");
    if tls {
        help.push_str(", and add [clusters.NAME.tls] for TLS");
    } else if matches!(scheme, "grpc" | "h2c") {
        help.push_str(", with protocol = \"http2\" in the cluster");
    }
    if path.len() > 1 {
        help.push_str("; the path of each request is passed on as it is");
    }
    Some(Flaw::new(format!("\"{text}\" is a URL, not an address"), help))
}

/// `authority` with `port`, unless it has one.
fn with_port(authority: &str, port: &str) -> String {
    match authority.parse::<Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]:{port}"),
        Err(_) if is_address(authority) => authority.to_owned(),
        Err(_) => format!("{authority}:{port}"),
    }
}

fn list(text: &str) -> Option<Flaw> {
    let parts: Vec<&str> = text.split([',', ' ', ';']).map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.len() < 2 || !parts.iter().all(|part| is_address(part)) {
        return None;
    }
    let quoted: Vec<String> = parts.iter().map(|part| format!("\"{part}\"")).collect();
    let help = format!("write each by itself: {}", quoted.join(", "));
    Some(Flaw::new(format!("\"{text}\" is several addresses"), help))
}

fn network(text: &str) -> Option<Flaw> {
    let (ip, rest) = text.split_once('/')?;
    let length = rest.split(':').next().unwrap_or(rest);
    let is_one = is_ip(ip.trim_matches(['[', ']'])) && length.parse::<u8>().is_ok();
    let help = "list each backend by its own address and port, such as \"10.0.0.1:8080\"";
    is_one.then(|| Flaw::new(format!("\"{text}\" is a network, not an address"), help))
}

fn range(text: &str) -> Option<Flaw> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let is_of_ports = port.split_once('-').is_some_and(|(first, last)| is_port(first) && is_port(last));
    let is_of_hosts = host.split_once('-').is_some_and(|(first, _)| is_ip(first));
    let example = host.split_once('-').filter(|_| is_of_hosts).map_or(host, |(first, _)| first);
    let port = port.split('-').next().filter(|port| is_port(port)).unwrap_or(PORT);
    let help = format!("list each backend by itself: \"{example}:{port}\" and so on");
    (is_of_ports || is_of_hosts).then(|| Flaw::new(format!("\"{text}\" is a range of addresses"), help))
}

/// `10.0.0.1:80 weight=2`, as HAProxy and nginx have it, and `10.0.0.1:80;`.
fn with_options(text: &str) -> Option<Flaw> {
    let mut words = text.trim_end_matches([';', ',']).split([' ', '=']).filter(|word| !word.is_empty());
    let address = words.find(|word| is_address(word))?;
    let mut help = format!("write \"{address}\"");
    while let Some(word) = words.next() {
        if word == "weight"
            && let Some(weight) = words.next()
        {
            help = format!("write {{ address = \"{address}\", weight = {weight} }}");
        }
    }
    Some(Flaw::new(format!("\"{text}\" has more in it than an address"), help))
}

fn port_alone(text: &str) -> Option<Flaw> {
    let port = text.strip_prefix(':').unwrap_or(text);
    let help = format!("write \"127.0.0.1:{port}\" for a service on this machine");
    is_port(port).then(|| Flaw::new(format!("\"{text}\" has no host"), help))
}

fn ipv6(text: &str) -> Option<Flaw> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let ip: Ipv6Addr = bare.parse().ok()?;
    if bare != text {
        return Some(Flaw::new(format!("\"{text}\" has no port"), format!("write \"[{ip}]:{PORT}\", with its port")));
    }
    let mut help = format!("write \"[{ip}]:{PORT}\", with its port");
    // `fd00::1:80` is an address by itself, and may be meant to be one with a port.
    if let Some((front, port)) = text.rsplit_once(':')
        && let Ok(front) = front.parse::<Ipv6Addr>()
        && is_port(port)
    {
        help = format!("write \"[{front}]:{port}\" if {port} is the port, else \"[{ip}]:{PORT}\"");
    }
    Some(Flaw::new(format!("\"{text}\" is an IPv6 address without brackets"), help))
}

fn any(text: &str) -> Option<Flaw> {
    let port = text.strip_prefix("*:").or_else(|| (text == "*").then_some(PORT))?;
    let help = format!("write \"127.0.0.1:{port}\" for a service on this machine");
    Some(Flaw::new("\"*\" is not a host", help))
}

fn path(text: &str) -> Option<Flaw> {
    let (address, path) = text.split_once('/')?;
    let address = if is_host_name(address) { format!("{address}:{PORT}") } else { address.to_owned() };
    let help = format!("write \"{address}\"; the path of each request is passed on as it is");
    is_address(&address).then(|| Flaw::new(format!("\"/{path}\" is a path, which is no part of an address"), help))
}

fn other(text: &str) -> Flaw {
    let help = "write host and port, such as \"10.0.0.1:8080\", \"[fd00::1]:8080\" or \"web.internal:8080\"";
    let Some((host, port)) = text.rsplit_once(':') else {
        return if is_ip(text) || is_host_name(text) && !looks_like_ipv4(text) {
            Flaw::new(format!("\"{text}\" has no port"), format!("write \"{text}:{PORT}\", with the backend's port"))
        } else if looks_like_ipv4(text) {
            Flaw::new(format!("\"{text}\" is not an IPv4 address"), help)
        } else {
            Flaw::new(format!("\"{text}\" is not an address"), help)
        };
    };
    let reason = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        _ if !is_port(port) => format!("\"{port}\" is not a port (1 to 65535)"),
        Some(ip) => format!("\"{ip}\" is not an IPv6 address"),
        None if looks_like_ipv4(host) => format!("\"{host}\" is not an IPv4 address"),
        None => format!("\"{host}\" is not a host"),
    };
    Flaw::new(reason, help)
}

/// Whether `host` is made of digits and dots: looked up as a name it would fail in an unexpected
/// place.
pub(super) fn looks_like_ipv4(host: &str) -> bool {
    let is_numeric = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    host.contains('.') && host.bytes().all(is_numeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_address_gets_help_with_a_correct_one() {
        for (text, reason, help) in [
            ("10.0.0.0/24", "is a network", "list each backend by its own address and port"),
            ("10.0.0.0/24:80", "is a network", "list each backend"),
            ("fd00::/64", "is a network", "list each backend"),
            ("10.0.0.1-10.0.0.5:80", "is a range", "\"10.0.0.1:80\" and so on"),
            ("10.0.0.1:80-85", "is a range", "\"10.0.0.1:80\" and so on"),
            ("9101", "has no host", "write \"127.0.0.1:9101\""),
            (":9101", "has no host", "write \"127.0.0.1:9101\""),
            ("*:80", "is not a host", "write \"127.0.0.1:80\""),
            ("10.0.0.1", "has no port", "write \"10.0.0.1:8080\""),
            ("web.internal", "has no port", "write \"web.internal:8080\""),
            ("[::1]", "has no port", "write \"[::1]:8080\""),
            ("::1", "without brackets", "write \"[::1]:8080\""),
            ("fd00::1:80", "without brackets", "write \"[fd00::1]:80\" if 80 is the port"),
            ("http://10.0.0.1:80/app", "is a URL", "write \"10.0.0.1:80\"; the path"),
            ("http://web", "is a URL", "write \"web:80\""),
            ("https://web.internal/", "is a URL", "write \"web.internal:443\", and add [clusters.NAME.tls]"),
            ("grpc://web:50051", "is a URL", "write \"web:50051\", with protocol = \"http2\""),
            ("dns:///web:50051", "is a URL", "write \"web:50051\""),
            ("unix:run/app.sock", "must be absolute", "\"unix:/run/run/app.sock\""),
            ("/run/app.sock", "begins with \"unix:\"", "\"unix:/run/app.sock\""),
            ("10.0.0.1:80 weight 2", "more in it", "write { address = \"10.0.0.1:80\", weight = 2 }"),
            ("10.0.0.1:80 weight=2 max_fails=3", "more in it", "write { address = \"10.0.0.1:80\", weight = 2 }"),
            ("server s1 10.0.0.1:80 check", "more in it", "write \"10.0.0.1:80\""),
            ("10.0.0.1:80;", "more in it", "write \"10.0.0.1:80\""),
            ("a:80,b:80", "several addresses", "write each by itself: \"a:80\", \"b:80\""),
            ("10.0.0.1:80/api", "is a path", "write \"10.0.0.1:80\""),
            ("${BACKEND}:80", "has a variable", "variables are not replaced"),
            ("", "is empty", "such as"),
            ("a:0", "is not a port", "write host and port"),
            ("a:b", "is not a port", "write host and port"),
            ("[zz]:80", "is not an IPv6 address", "write host and port"),
            ("10.0.0.256:80", "is not an IPv4 address", "write host and port"),
            ("a_b$:80", "has a variable", "write the address itself"),
            ("-a:80", "is not a host", "write host and port"),
        ] {
            let flaw = BackendAddress::parse(text).unwrap_err();
            assert!(flaw.reason.contains(reason) && flaw.help.contains(help), "{text}: {}; {}", flaw.reason, flaw.help);
        }
    }

    #[test]
    fn unix_socket_is_refused_where_a_server_is_reached_by_tcp_only() {
        for text in ["unix:/run/app.sock", "/run/app.sock", "unix@app", "@app"] {
            let flaw = BackendAddress::parse_inet(text).unwrap_err();
            assert!(flaw.reason.contains("is reached by TCP only"), "{text}: {}", flaw.reason);
        }
    }

    /// A help text that is wrong in its turn would send the user in circles.
    #[test]
    fn address_in_help_is_an_address() {
        for text in
            ["9101", "::1", "fd00::1:80", "http://web", "grpc://web:50051", "a:80,b:80", "1.2.3.4", "[::1]", "*:80"]
        {
            let help = BackendAddress::parse(text).unwrap_err().help;
            let suggested = help.split('"').nth(1).unwrap();
            assert!(BackendAddress::parse(suggested).is_ok(), "{text}: {help}");
        }
    }
}
