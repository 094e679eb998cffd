//! Changes of header fields by a route.
//!
//! Requests are changed after the hop-by-hop fields are removed, and before the proxy writes the
//! fields that name the client. So a rule never meets a field of the client's connection, and
//! cannot be undone by one named in `Connection`; and it cannot forge the proxy's own fields. The
//! configuration refuses rules on those (`config::header_rules`).
//!
//! Responses are changed last. All answers of a route are, those of the proxy too: a field for
//! security is needed on error pages most. Names are in one rule only, so the order of removals,
//! values and additions does not matter.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::config;

/// Changes of fields.
#[derive(Clone, Debug)]
pub(crate) struct HeaderRules {
    remove: Box<[HeaderName]>,
    set: Box<[(HeaderName, HeaderValue)]>,
    add: Box<[(HeaderName, HeaderValue)]>,
}

impl HeaderRules {
    pub(crate) fn new(rules: &config::HeaderRules) -> Self {
        Self {
            remove: rules.remove.as_slice().into(),
            set: rules.set.as_slice().into(),
            add: rules.add.as_slice().into(),
        }
    }

    /// Changes the fields of a message. The map holds 24,576 fields; a message of more, which no
    /// listener accepts by default, gets no further ones.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            let _ = headers.try_insert(name, value.clone());
        }
        for (name, value) in &self.add {
            let _ = headers.try_append(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_change_all_lines_of_a_name() {
        let field = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let rules = HeaderRules {
            remove: [HeaderName::from_static("x-gone")].into(),
            set: [field("x-set", "new"), field("x-both", "1")].into(),
            add: [field("x-add", "2"), field("x-other", "1")].into(),
        };
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-gone", "1"), ("x-gone", "2"), ("x-set", "1"), ("x-set", "2"), ("x-add", "1")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        rules.apply(&mut headers);
        let all = |name: &str| headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!((all("x-gone"), all("x-set"), all("x-add")), (vec![], vec!["new"], vec!["1", "2"]));
        assert_eq!((all("x-both"), all("x-other")), (vec!["1"], vec!["1"]));
    }
}
