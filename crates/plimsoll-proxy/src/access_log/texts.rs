//! The texts of a request's head that a line needs, copied.
//!
//! The parts of a head share one buffer of up to 64 KiB, and each holds on to all of it. An entry
//! lives as long as the answer, which may be a download or a tunnel of hours; so it has the few
//! texts of its own, cut where the line cuts them, in one allocation.

use super::line::{MAX_PATH, MAX_TEXT};

/// Which text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Text {
    Authority,
    Path,
    UserAgent,
    RequestId,
    TraceParent,
    Referer,
}

const COUNT: usize = Text::Referer as usize + 1;

/// The texts, one after the other.
#[derive(Debug)]
pub(super) struct Texts {
    bytes: Box<[u8]>,
    /// Where each ends, and the next begins; none for one that there was not.
    ends: [Option<u16>; COUNT],
}

impl Texts {
    /// Copies them, in the order of [`Text`].
    pub(super) fn copy(texts: [Option<&[u8]>; COUNT]) -> Self {
        let kept: [Option<&[u8]>; COUNT] = std::array::from_fn(|at| {
            let most = if at == Text::Path as usize { MAX_PATH } else { MAX_TEXT };
            // One byte more, which shows the line that there was more.
            texts[at].map(|text| &text[..text.len().min(most + 1)])
        });
        let mut bytes = Vec::with_capacity(kept.iter().flatten().map(|text| text.len()).sum());
        let ends = kept.map(|text| {
            bytes.extend_from_slice(text?);
            Some(bytes.len() as u16)
        });
        Self { bytes: bytes.into_boxed_slice(), ends }
    }

    pub(super) fn get(&self, text: Text) -> Option<&[u8]> {
        let end = self.ends[text as usize]?;
        let begin = self.ends[..text as usize].iter().rev().flatten().next().map_or(0, |end| usize::from(*end));
        Some(&self.bytes[begin..usize::from(end)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_found_again_cut_one_byte_beyond_its_limit() {
        let long = vec![b'x'; 60_000];
        let texts = Texts::copy([Some(b""), Some(&long), None, Some(b"7"), Some(&long), Some(b"/a")]);
        assert_eq!(texts.get(Text::Authority), Some(&b""[..]));
        assert_eq!(texts.get(Text::Path).map(<[u8]>::len), Some(MAX_PATH + 1));
        assert_eq!(texts.get(Text::UserAgent), None);
        assert_eq!(texts.get(Text::RequestId), Some(&b"7"[..]));
        assert_eq!(texts.get(Text::TraceParent).map(<[u8]>::len), Some(MAX_TEXT + 1));
        assert_eq!(texts.get(Text::Referer), Some(&b"/a"[..]));
    }
}
