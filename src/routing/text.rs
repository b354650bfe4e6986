//! Text that is compared on every lookup: up to 30 bytes stand beside what they are the key of, so that
//! a comparison costs no visit to another place in memory.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Longest text held in place; it makes [`Text`] half a cache line.
const INLINE_BYTES: usize = 30;

/// An immutable text, seen as bytes.
#[derive(Clone)]
pub(super) enum Text {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(text.as_bytes());
                Text::Inline { len, bytes }
            }
            _ => Text::Heap(text.as_bytes().into()),
        }
    }
}

impl Text {
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Text::Heap(bytes) => bytes,
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Text {}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self.as_bytes()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn short_and_long_texts_are_found_by_their_bytes() {
        let texts: Vec<String> = (0..40).map(|length| "x".repeat(length)).collect();
        let map: HashMap<Text, usize> =
            texts.iter().map(|text| (Text::from(text.as_str()), text.len())).collect();
        assert_eq!(map.len(), 40);
        for text in &texts {
            assert_eq!(map.get(text.as_bytes()), Some(&text.len()));
        }
        assert_eq!(size_of::<Text>(), 32);
    }
}
