//! Unix sockets in the file: `unix:/run/app.sock`, `unix:@name`, and the mode of a listener's file.

use std::fmt;
use std::path::Path;

use plimsoll::address::{Address, AddressError, MAX_PATH, UNIX};
use plimsoll_config::{Flaw, Format, quoted, text};

/// Beginnings of Unix sockets in the syntax of other programs (HAProxy, gRPC, nginx), and ours.
const OTHERS: [(&str, &str); 5] =
    [("unix@", ""), ("abns@", "@"), ("unix-abstract:", "@"), ("http://unix:", ""), ("", "")];

/// Whether `text` is meant to be a Unix socket, in our syntax or that of another program.
pub(super) fn is_meant(text: &str) -> bool {
    let is_of_another = OTHERS.iter().any(|(begin, _)| !begin.is_empty() && text.starts_with(begin));
    text.starts_with(UNIX) || text.starts_with(['/', '@']) || is_of_another
}

/// The Unix socket that `text` is.
///
/// # Errors
/// The mistake in it.
pub(super) fn read(text: &str) -> Result<Address, Flaw> {
    let Some(name) = text.strip_prefix(UNIX) else {
        let name = OTHERS.iter().find_map(|(begin, ours)| Some(format!("{ours}{}", text.strip_prefix(begin)?)));
        let name = name.unwrap_or_default();
        // nginx has a path of a URL behind it.
        let name = name.split(':').next().unwrap_or_default();
        let reason = format!("\"{text}\" is no address: a Unix socket begins with \"{UNIX}\"");
        return Err(Flaw::new(reason, format!("write \"{UNIX}{name}\"")));
    };
    if let Some((path, port)) = name.rsplit_once(':')
        && !port.is_empty()
        && port.bytes().all(|byte| byte.is_ascii_digit())
    {
        let reason = format!("\"{text}\" has a port, and a Unix socket has none");
        return Err(Flaw::new(reason, format!("write \"{UNIX}{path}\"")));
    }
    text.parse().map_err(|error: AddressError| {
        let help = match error {
            AddressError::Relative if name.is_empty() => format!("write \"{UNIX}/run/app.sock\""),
            AddressError::Relative => format!("write \"{UNIX}/run/{}\"", name.trim_start_matches("./")),
            AddressError::Folder => {
                format!("name the socket in it, such as \"{UNIX}{}/app.sock\"", name.trim_end_matches('/'))
            }
            AddressError::TooLong(_) => {
                format!("use a path of at most {MAX_PATH} bytes, or a symbolic link to its folder")
            }
            AddressError::NoName => format!("write a name, such as \"{UNIX}@app\""),
            AddressError::Control => "use a path without control characters".to_owned(),
            AddressError::TooMany => "restart the process (plimsoll upgrade loses no connection)".to_owned(),
            _ => format!("write a path, such as \"{UNIX}/run/app.sock\""),
        };
        Flaw::new(format!("\"{}\" is no Unix socket: {error}", text.escape_debug()), help)
    })
}

/// Why nobody can listen at this path, as far as it can be told now; `None` if nothing is known.
pub(super) fn missing_folder(address: Address) -> Option<String> {
    let path = address.unix().filter(|path| path.abstract_name().is_none())?;
    let folder = Path::new(path.as_str()).parent()?;
    (!folder.is_dir()).then(|| folder.display().to_string())
}

/// The mode of the file of a Unix socket: the users that may connect need the right to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMode(u32);

impl SocketMode {
    /// The user of the process and the group of the file. The folder can give the file another
    /// group (`chmod g+s`).
    pub const DEFAULT: Self = Self(0o660);

    /// The mode of these bits; `None` if there are others than those of users, or if the process
    /// itself could not connect.
    #[must_use]
    pub const fn new(bits: u32) -> Option<Self> {
        if bits <= 0o777 && bits & 0o200 != 0 { Some(Self(bits)) } else { None }
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// A mode in octal digits, in quotes: a number in TOML is decimal.
pub(super) const MODE: Format<SocketMode> = Format {
    read: |v| {
        let help = "write octal digits in quotes, such as \"0660\" for user and group, or \"0666\" for all";
        let digits = text(v, "a mode", help.trim_start_matches("write "))?;
        let is_octal = (3..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = u32::from_str_radix(digits, 8).ok().filter(|_| is_octal);
        bits.and_then(SocketMode::new).ok_or_else(|| {
            if matches!(digits, "http" | "tcp") {
                let help = "remove it: Plimsoll proxies HTTP only, and a mode is that of a Unix socket's file";
                return Flaw::new(format!("\"{digits}\" is not a mode of a file"), help);
            }
            let reason = match bits {
                Some(bits) if bits <= 0o777 => format!("\"{digits}\" lacks the right of the owner to write (0200)"),
                _ => format!("\"{digits}\" is not a mode of a file"),
            };
            Flaw::new(reason, help)
        })
    },
    print: |mode| quoted(mode),
};

#[cfg(test)]
mod tests {
    use plimsoll_config::DeValue;

    use super::*;

    #[test]
    fn text_that_is_no_unix_socket_gets_help_with_a_correct_one() {
        for (text, reason, help) in [
            ("/run/app.sock", "begins with \"unix:\"", "write \"unix:/run/app.sock\""),
            ("@app", "begins with \"unix:\"", "write \"unix:@app\""),
            ("unix@/run/app.sock", "begins with", "write \"unix:/run/app.sock\""),
            ("abns@app", "begins with", "write \"unix:@app\""),
            ("unix-abstract:app", "begins with", "write \"unix:@app\""),
            ("http://unix:/run/app.sock:/uri", "begins with", "write \"unix:/run/app.sock\""),
            ("unix:app.sock", "must be absolute", "write \"unix:/run/app.sock\""),
            ("unix:./app.sock", "must be absolute", "write \"unix:/run/app.sock\""),
            ("unix:", "must be absolute", "write \"unix:/run/app.sock\""),
            ("unix:/run/app/", "names a folder", "\"unix:/run/app/app.sock\""),
            ("unix:@", "name of a Unix socket is empty", "\"unix:@app\""),
            ("unix:/run/app.sock:80", "has a port", "write \"unix:/run/app.sock\""),
            ("unix:/run/a\nb", "control character", "without control characters"),
        ] {
            assert!(is_meant(text), "{text}");
            let flaw = read(text).unwrap_err();
            assert!(flaw.reason.contains(reason) && flaw.help.contains(help), "{text}: {}; {}", flaw.reason, flaw.help);
        }
        let long = format!("unix:/{}", "x".repeat(MAX_PATH));
        assert!(read(&long).unwrap_err().reason.contains("has 108 bytes, and the kernel takes 107"));
        assert_eq!(read("unix:/run/app.sock").unwrap().to_string(), "unix:/run/app.sock");
    }

    #[test]
    fn modes_are_read_and_printed_alike() {
        let read = |text: &str| (MODE.read)(&DeValue::String(text.to_owned().into()));
        for text in ["0660", "0666", "0600", "0777"] {
            assert_eq!((MODE.print)(&read(text).unwrap()), format!("\"{text}\""));
        }
        assert_eq!(read("660").unwrap(), SocketMode::DEFAULT);
        for (text, reason) in [
            ("0460", "lacks the right of the owner"),
            ("0888", "is not a mode"),
            ("01777", "is not a mode"),
            ("4660", "is not a mode"),
            ("+660", "is not a mode"),
            ("http", "is not a mode"),
            ("", "is not a mode"),
        ] {
            assert!(read(text).unwrap_err().reason.contains(reason), "{text}: {}", read(text).unwrap_err().reason);
        }
    }
}
