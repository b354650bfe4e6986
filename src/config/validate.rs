//! Rules that concern more than one key.
