//! Certificates and keys from PEM files.
//!
//! The errors differ by the fix: the file is missing, it is not PEM, it holds the other half of the
//! pair, its key is encrypted. rustls says "no items found" for most of these.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum size of a file. The roots of a whole system take a quarter of a megabyte; a longer file
/// is something else, perhaps a device.
const MAX_BYTES: u64 = 4 << 20;

/// The problem of a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file is missing or unreadable.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The file is too long for certificates.
    #[error("is longer than 4 MiB, the limit for a certificate file")]
    TooLong,
    /// The PEM is broken.
    #[error("is not PEM: {0}")]
    NotPem(String),
    /// The file holds no certificate.
    #[error("holds no certificate in PEM")]
    NoCertificate,
    /// The file holds no key.
    #[error("holds no private key in PEM")]
    NoKey,
    /// The key is encrypted with a password.
    #[error("holds a key that is encrypted with a password")]
    EncryptedKey,
    /// A certificate cannot be used as a CA.
    #[error("holds a certificate that cannot be used as a CA: {0}")]
    BadAuthority(rustls::Error),
}

/// The certificates of a file in their order, at least one.
///
/// # Errors
/// The problem of the file.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let text = read(path)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(not_pem)?;
    if found.is_empty() { Err(FileError::NoCertificate) } else { Ok(found) }
}

/// The first private key of a file.
///
/// # Errors
/// The problem of the file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound if is_encrypted(&text) => FileError::EncryptedKey,
        pem::Error::NoItemsFound => FileError::NoKey,
        // Old OpenSSL puts the password's parameters where only base64 should be.
        _ if is_encrypted(&text) => FileError::EncryptedKey,
        other => not_pem(other),
    })
}

/// The certificate authorities in a file.
///
/// # Errors
/// The problem of the file.
pub fn authorities(path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(FileError::BadAuthority)?;
    }
    Ok(roots)
}

fn not_pem(error: pem::Error) -> FileError {
    FileError::NotPem(error.to_string())
}

fn is_encrypted(text: &[u8]) -> bool {
    let holds = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
    holds(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || holds(b"Proc-Type: 4,ENCRYPTED")
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let file = File::open(path).map_err(FileError::Unreadable)?;
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(FileError::Unreadable)?;
    if text.len() as u64 > MAX_BYTES { Err(FileError::TooLong) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::testing::{Authority, Folder};

    #[test]
    fn what_is_wrong_with_a_file_is_said_in_words() {
        let folder = Folder::new("tls-files");
        let (certificate, key) = Authority::new().sign(&["a.example"]);
        let good = folder.write("good.pem", &certificate);
        let good_key = folder.write("good.key", &key);
        assert_eq!(certificates(&good).unwrap().len(), 1);
        assert!(private_key(&good_key).is_ok());

        let error = |result: Result<(), FileError>| result.unwrap_err().to_string();
        let of_certificate = |path: &Path| error(certificates(path).map(drop));
        let of_key = |path: &Path| error(private_key(path).map(drop));
        assert_eq!(of_certificate(&good_key), "holds no certificate in PEM");
        assert_eq!(of_key(&good), "holds no private key in PEM");
        assert_eq!(of_certificate(&folder.write("text", "hello\n")), "holds no certificate in PEM");
        let cut = folder.write("cut", &certificate[..certificate.len() / 2]);
        assert!(of_certificate(&cut).starts_with("is not PEM: "));
        let encrypted = folder
            .write("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
        assert_eq!(of_key(&encrypted), "holds a key that is encrypted with a password");
        assert!(of_key(&folder.path().join("none")).starts_with("cannot be read: "));
        assert_eq!(of_certificate(Path::new("/dev/zero")), "is longer than 4 MiB, the limit for a certificate file");
    }
}
