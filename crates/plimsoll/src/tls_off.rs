//! In place of TLS where its feature is off: a configuration that cannot exist.

use std::convert::Infallible;
use std::io;

use plimsoll_stream::{Socket, Stream};

/// Which protocol a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alpn {
    Http1,
    Http2,
}

/// No configuration of TLS.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TlsConfig(Infallible);

impl TlsConfig {
    pub(crate) fn server_name(&self) -> Option<&str> {
        match self.0 {}
    }

    pub(crate) fn continues(&self, _: &Self) -> bool {
        match self.0 {}
    }

    pub(crate) async fn connect(&self, _: Socket, _: &str, _: Alpn) -> io::Result<Stream> {
        match self.0 {}
    }
}
