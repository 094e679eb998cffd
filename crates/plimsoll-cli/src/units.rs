//! How durations, ratios, rates and addresses are written on the command line.
//!
//! One spelling for each in every command; what cannot be used (a rate of zero, a ratio above one)
//! is refused here, with the help in the text, so that later code need not look again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use plimsoll_core::Speed;

/// A duration such as `250ms`, `10s`, `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a number with a unit, such as 250ms, 10s, 1m30s"))
}

/// A duration longer than nothing.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// A share of one: `0.25` or `25%`.
pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    let value = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("must lie between 0 and 1, or 0% and 100%".to_owned()) }
}

/// A speed relative to the reference core.
pub(crate) fn speed(text: &str) -> Result<f64, String> {
    let (least, most) = (Speed::RANGE.start(), Speed::RANGE.end());
    let speed = Speed::new(number(text)?).ok_or_else(|| format!("must lie between {least} and {most}"))?;
    Ok(speed.as_f64())
}

/// A finite number greater than zero: rates.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match number(text)? {
        value if value > 0.0 => Ok(value),
        _ => Err("must be greater than zero".to_owned()),
    }
}

/// A finite number.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(format!("`{text}` is not a number")),
    }
}

/// Where to listen: `IP:PORT`, `localhost:PORT`, or `:PORT` for all addresses.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    address(text, Ipv4Addr::UNSPECIFIED.into())
}

/// Where something on this machine listens: `IP:PORT`, `localhost:PORT` or `:PORT`.
pub(crate) fn local_address(text: &str) -> Result<SocketAddr, String> {
    address(text, Ipv4Addr::LOCALHOST.into())
}

/// Where the admin API of a proxy listens, perhaps on another machine: `HOST:PORT` or `:PORT`.
pub(crate) fn admin_address(text: &str) -> Result<String, String> {
    if let Ok(address) = local_address(text) {
        return Ok(address.to_string());
    }
    let is_name = |host: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        !host.is_empty() && host.chars().all(is_part) && host.contains(|c: char| c.is_ascii_alphabetic())
    };
    match text.rsplit_once(':') {
        Some((host, port)) if is_name(host) && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("write a host and a port, such as edge-1:9900, 127.0.0.1:9900 or :9900".to_owned()),
    }
}

/// An address; `host` is meant by one without.
fn address(text: &str, host: IpAddr) -> Result<SocketAddr, String> {
    let parsed = match text.strip_prefix(':') {
        Some(port) => port.parse().ok().map(|port| SocketAddr::new(host, port)),
        None => text.replacen("localhost:", "127.0.0.1:", 1).parse().ok(),
    };
    parsed.ok_or_else(|| "write an IP address and a port, such as 127.0.0.1:8080, :8080 or [::1]:8080".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("10").unwrap_err().contains("unit"));
        assert!(positive_duration("0s").is_err());
    }

    #[test]
    fn addresses_may_leave_out_the_host() {
        let text = |address: Result<SocketAddr, String>| address.map(|address| address.to_string());
        assert_eq!(text(listen_address(":8081")), Ok("0.0.0.0:8081".to_owned()));
        assert_eq!(text(local_address(":9900")), Ok("127.0.0.1:9900".to_owned()));
        for known in [listen_address, local_address] {
            assert_eq!(text(known("localhost:1")), Ok("127.0.0.1:1".to_owned()));
            assert_eq!(text(known("[::1]:1")), Ok("[::1]:1".to_owned()));
            for junk in ["", "80", "example.com:80", ":99999", "1.2.3.4"] {
                assert!(known(junk).is_err(), "{junk}");
            }
        }
    }

    #[test]
    fn admin_addresses_may_name_a_host() {
        for (text, address) in [
            (":9900", "127.0.0.1:9900"),
            ("localhost:9900", "127.0.0.1:9900"),
            ("[::1]:9900", "[::1]:9900"),
            ("edge-1.example:9900", "edge-1.example:9900"),
        ] {
            assert_eq!(admin_address(text), Ok(address.to_owned()));
        }
        for junk in ["edge-1", "edge-1:", "edge 1:9900", "edge-1:99999", "http://edge:9900", "1.2.3:9900", ":x"] {
            assert!(admin_address(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn ratios_are_shares_of_one() {
        assert_eq!(ratio("0.25"), Ok(0.25));
        assert_eq!(ratio("25%"), Ok(0.25));
        assert_eq!(ratio("1"), Ok(1.0));
        for bad in ["-0.1", "1.01", "101%", "NaN", "inf", "", "x"] {
            assert!(ratio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn speeds_are_within_their_range() {
        assert_eq!(speed("2.5"), Ok(2.5));
        for bad in ["0", "-1", "101", "0.009", "NaN", "x"] {
            assert!(speed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_greater_than_zero_and_finite() {
        assert_eq!(positive("2.5"), Ok(2.5));
        for bad in ["0", "-1", "inf", "NaN", "1e999"] {
            assert!(positive(bad).is_err(), "{bad}");
        }
    }
}
