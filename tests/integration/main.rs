//! Everything over the wire: the real binary, one file a subject.

mod support;
