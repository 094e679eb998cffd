//! Names of fields that were seen of late, so that they need not be made again.
//!
//! Messages on one connection, and on most connections of a proxy, have the same few names. To make one means to look through it, to ask
//! for memory if it is none of the standard's, and to give that back at the end: half of what reading a field costs. One that is known
//! is compared, and counted once more. Each thread knows as many as there are places, the latest at each.

use std::cell::RefCell;

use http::HeaderName;

/// Services use some tens.
const PLACES: usize = 64;

/// Longer ones are not kept, so that nobody fills the places with great ones.
const LONGEST: usize = 64;

thread_local! {
    static KNOWN: RefCell<Names> = const { RefCell::new(Names::NONE) };
}

/// Names, and how they were written, by where they would stand.
pub(crate) struct Names([Option<(Box<[u8]>, HeaderName)>; PLACES]);

/// Gives `task` the names that this thread knows.
pub(crate) fn with_known<T>(task: impl FnOnce(&mut Names) -> T) -> T {
    KNOWN.with_borrow_mut(task)
}

impl Names {
    const NONE: Self = Self([const { None }; PLACES]);

    /// The name that is written so, in capitals or not; `None` if it is no name.
    pub(crate) fn of(&mut self, written: &[u8]) -> Option<HeaderName> {
        let (&first, &last) = (written.first()?, written.last()?);
        let place = usize::from(first) * 5 + usize::from(last) * 3 + written.len();
        let place = &mut self.0[place % PLACES];
        match place {
            Some((known, name)) if **known == *written => Some(name.clone()),
            _ => {
                let name = HeaderName::from_bytes(written).ok()?;
                if written.len() <= LONGEST {
                    *place = Some((written.into(), name.clone()));
                }
                Some(name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::HOST;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_the_same_however_it_is_written_and_whoever_was_at_its_place() {
        let mut names = Names::NONE;
        for written in ["Host", "host", "X-Customer", "x-customer", "X-CUSTOMER", "host"] {
            let name = names.of(written.as_bytes()).unwrap();
            assert_eq!(name, HeaderName::from_bytes(written.as_bytes()).unwrap());
        }
        assert_eq!(names.of(b"HOST"), Some(HOST));
        for number in 0..1_000 {
            let written = format!("X-{number}");
            assert_eq!(names.of(written.as_bytes()).unwrap(), written.to_lowercase().as_str());
        }
    }

    #[test]
    fn what_is_no_name_is_none_and_long_ones_are_not_kept() {
        let mut names = Names::NONE;
        for written in [&b""[..], b"a b", b"a:", b"\xe4", b"a\0"] {
            assert_eq!(names.of(written), None, "{written:?}");
        }
        let long = "a".repeat(LONGEST + 1);
        assert_eq!(names.of(long.as_bytes()).unwrap(), long.as_str());
        assert!(names.0.iter().all(Option::is_none));
    }

    proptest! {
        #[test]
        fn knowing_names_changes_nothing(lines in proptest::collection::vec("[ -~]{0,6}", 0..200)) {
            let mut names = Names::NONE;
            for line in lines {
                prop_assert_eq!(names.of(line.as_bytes()), HeaderName::from_bytes(line.as_bytes()).ok());
            }
        }
    }
}
