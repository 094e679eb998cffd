//! The header of the PROXY protocol, by which a connection may begin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_wire::proxy_protocol::{MAX_LENGTH, Parsed, encode, parse};

fuzz_target!(|data: &[u8]| {
    match parse(data) {
        Ok(Parsed::Whole { version, length, addresses }) => {
            assert!(length <= data.len() && length <= MAX_LENGTH);
            // The header ends where it ends, whatever follows, and not before.
            assert_eq!(parse(&data[..length]), parse(data));
            assert_eq!(parse(&data[..length - 1]), Ok(Parsed::Partial));
            // Written anew it says the same, but that an IPv4 address written as IPv6 becomes one of IPv4.
            let again = encode(version, addresses);
            let Ok(Parsed::Whole { length, addresses: read, .. }) = parse(&again) else { panic!("{again:?}") };
            assert_eq!(length, again.len());
            let plain = |address: std::net::SocketAddr| (address.ip().to_canonical(), address.port());
            assert_eq!(
                read.map(|both| [plain(both.source), plain(both.destination)]),
                addresses.map(|both| [plain(both.source), plain(both.destination)])
            );
        }
        Ok(Parsed::Partial) => assert!(data.len() < MAX_LENGTH),
        Err(_) => {}
    }
});
