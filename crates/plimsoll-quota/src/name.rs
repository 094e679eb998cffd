//! The names of customers and of groups: two namespaces.

/// A name is that of a customer or of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Customer,
    Group,
}

impl Kind {
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Group => "group",
        }
    }
}

/// The name of a customer or a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) kind: Kind,
    pub(crate) bytes: Box<[u8]>,
}

impl Name {
    pub(crate) fn new(kind: Kind, bytes: &[u8]) -> Self {
        Self { kind, bytes: bytes.into() }
    }

    pub(crate) fn customer(bytes: &[u8]) -> Self {
        Self::new(Kind::Customer, bytes)
    }

    /// As the file has it; `None` for a name that no file can have.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// For people.
    pub(crate) fn shown(&self) -> String {
        self.bytes.escape_ascii().to_string()
    }
}
