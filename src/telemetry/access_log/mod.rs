//! One record for each request: what it holds, how it is written, which ones are not, and the thread
//! that writes them.
//!
//! | file | answers |
//! |---|---|
//! | `record` | what is known of a finished request? |
//! | `policy` | is it written, and what of it is hidden? |
//! | `format` | what does the line look like? |
//! | `redact` | how are secrets cut out of a query? |
//! | `writer` | how does the line leave without anybody waiting? |

pub mod policy;
pub mod record;
pub mod writer;

mod format;
mod redact;
