//! The browser of the person at this machine, and the live page that it opens.

use std::cell::Cell;
use std::env;
use std::io::{IsTerminal as _, stderr};
use std::net::SocketAddr;

use crate::output::errln;

/// Whether a browser opens pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Browser {
    opens: bool,
}

impl Browser {
    /// It does where a person and a browser are likely to be, unless `no_open`.
    pub(crate) fn new(no_open: bool) -> Self {
        Self { opens: !no_open && stderr().is_terminal() && has_screen() }
    }

    /// The page of the admin API at this address.
    pub(crate) fn page(self, admin: SocketAddr) -> Page {
        Page { admin, browser: self, is_shown: Cell::new(false) }
    }
}

/// The live page at an address. Processes may take turns there, as the acts of a demo do.
#[derive(Debug)]
pub(crate) struct Page {
    admin: SocketAddr,
    browser: Browser,
    is_shown: Cell<bool>,
}

impl Page {
    /// The address of the admin API.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Says where the page is, and opens it; once. Somebody has to answer there by now.
    pub(crate) fn show(&self) {
        if self.is_shown.replace(true) {
            return;
        }
        let address = format!("http://{}/live/", self.admin);
        errln!("live page: {address}");
        if self.browser.opens && open::that_detached(&address).is_err() {
            errln!("  no browser found: open it by hand");
        }
    }
}

/// Whether this machine has a screen: a server reached by ssh has none.
fn has_screen() -> bool {
    cfg!(target_os = "macos") || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some())
}
