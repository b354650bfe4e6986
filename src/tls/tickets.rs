//! With which keys are session tickets sealed?
//!
//! The keys live as long as the process and are shared by every context of every snapshot, so that a
//! session resumes on another worker, under another certificate of ours and after a reload. They are
//! never written to a disk; a process that takes over gets them ([`TicketKeys::export`]). When to rotate
//! them is the business of `background::ticket_rotation`.

use boring::error::ErrorStack;
use boring::hash::MessageDigest;
use boring::hmac::HmacCtxRef;
use boring::memcmp;
use boring::rand::rand_bytes;
use boring::ssl::{SslContextBuilder, TicketKeyCallbackResult};
use boring::symm::{Cipher, CipherCtxRef};
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The ticket keys of the process; clones share them.
#[derive(Clone)]
pub struct TicketKeys(Arc<RwLock<Ring>>);

/// The key that seals, and the one before it, whose tickets still open.
struct Ring {
    current: TicketKey,
    /// Since when it seals.
    since: Instant,
    previous: Option<TicketKey>,
}

/// One key: AES-128-CBC and HMAC-SHA-256, the construction of RFC 5077 section 4.
struct TicketKey {
    name: [u8; 16],
    cipher: [u8; 16],
    mac: [u8; 32],
}

impl TicketKeys {
    /// New random keys. Fails only when the random generator does.
    pub fn generate() -> Result<TicketKeys, ErrorStack> {
        let ring = Ring { current: TicketKey::generate()?, since: Instant::now(), previous: None };
        Ok(TicketKeys(Arc::new(RwLock::new(ring))))
    }

    /// Seals with a new key from now on. Tickets of the key used until now still open, and are renewed
    /// when they are used; older ones no longer do.
    pub fn rotate(&self) -> Result<(), ErrorStack> {
        let fresh = TicketKey::generate()?;
        let mut ring = self.0.write();
        ring.previous = Some(std::mem::replace(&mut ring.current, fresh));
        ring.since = Instant::now();
        Ok(())
    }

    /// How long the current key has sealed, in this process and those before it.
    pub fn age(&self) -> Duration {
        self.0.read().since.elapsed()
    }

    /// The keys, for a process that takes over: the age of the current one in seconds (8 bytes, big
    /// endian), the current one, the one before it if there is one. Whoever reads them can read sessions.
    pub fn export(&self) -> Vec<u8> {
        let ring = self.0.read();
        let mut bytes = ring.since.elapsed().as_secs().to_be_bytes().to_vec();
        for key in [Some(&ring.current), ring.previous.as_ref()].into_iter().flatten() {
            bytes.extend_from_slice(&key.name);
            bytes.extend_from_slice(&key.cipher);
            bytes.extend_from_slice(&key.mac);
        }
        bytes
    }

    /// Seals and opens with exported keys from now on, instead of its own. False: they are not of the
    /// form above, and nothing has changed.
    pub fn adopt(&self, exported: &[u8]) -> bool {
        let Some(ring) = Ring::of(exported) else { return false };
        *self.0.write() = ring;
        true
    }

    /// Makes a context seal and open its tickets with these keys.
    pub fn install(&self, context: &mut SslContextBuilder) {
        let keys = self.clone();
        // SAFETY: `callback` sets the key name, the initialisation vector, the cipher and the MAC when
        // it seals, the cipher and the MAC when it opens, and answers Noop or Error otherwise, which is
        // the contract of SSL_CTX_set_tlsext_ticket_key_cb.
        unsafe {
            context.set_ticket_key_callback(move |_, name, iv, cipher, mac, sealing| {
                let ring = keys.0.read();
                if sealing { ring.seal(name, iv, cipher, mac) } else { ring.open(name, iv, cipher, mac) }
            });
        }
    }
}

impl Ring {
    fn of(exported: &[u8]) -> Option<Ring> {
        let (age, keys) = exported.split_first_chunk::<8>()?;
        let since = Instant::now().checked_sub(Duration::from_secs(u64::from_be_bytes(*age)));
        let (current, rest) = TicketKey::read(keys)?;
        let previous = match rest {
            [] => None,
            _ => Some(TicketKey::read(rest).filter(|(_, rest)| rest.is_empty())?.0),
        };
        // A clock that does not reach back so far knows only that the key is not new.
        Some(Ring { current, since: since.unwrap_or_else(Instant::now), previous })
    }

    fn seal(
        &self,
        name: &mut [u8; 16],
        iv: &mut [u8; 16],
        cipher: &mut CipherCtxRef,
        mac: &mut HmacCtxRef,
    ) -> TicketKeyCallbackResult {
        *name = self.current.name;
        let sealed = rand_bytes(iv)
            .and_then(|()| cipher.init_encrypt(&Cipher::aes_128_cbc(), &self.current.cipher, iv))
            .and_then(|()| mac.init(&self.current.mac, &MessageDigest::sha256()));
        match sealed {
            Ok(()) => TicketKeyCallbackResult::Success,
            Err(_) => TicketKeyCallbackResult::Error,
        }
    }

    fn open(
        &self,
        name: &[u8; 16],
        iv: &[u8; 16],
        cipher: &mut CipherCtxRef,
        mac: &mut HmacCtxRef,
    ) -> TicketKeyCallbackResult {
        let named = |key: &&TicketKey| memcmp::eq(&key.name, name);
        let (key, found) = match (Some(&self.current).filter(named), self.previous.as_ref().filter(named)) {
            (Some(key), _) => (key, TicketKeyCallbackResult::Success),
            (None, Some(key)) => (key, TicketKeyCallbackResult::DecryptSuccessRenew),
            (None, None) => return TicketKeyCallbackResult::Noop,
        };
        let opened = cipher
            .init_decrypt(&Cipher::aes_128_cbc(), &key.cipher, iv)
            .and_then(|()| mac.init(&key.mac, &MessageDigest::sha256()));
        match opened {
            Ok(()) => found,
            Err(_) => TicketKeyCallbackResult::Error,
        }
    }
}

impl TicketKey {
    fn generate() -> Result<TicketKey, ErrorStack> {
        let mut key = TicketKey { name: [0; 16], cipher: [0; 16], mac: [0; 32] };
        rand_bytes(&mut key.name)?;
        rand_bytes(&mut key.cipher)?;
        rand_bytes(&mut key.mac)?;
        Ok(key)
    }

    /// The key that the bytes begin with, and what stands behind it.
    fn read(bytes: &[u8]) -> Option<(TicketKey, &[u8])> {
        let (name, rest) = bytes.split_first_chunk()?;
        let (cipher, rest) = rest.split_first_chunk()?;
        let (mac, rest) = rest.split_first_chunk()?;
        Some((TicketKey { name: *name, cipher: *cipher, mac: *mac }, rest))
    }
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKeys(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopted_keys_are_the_exported_ones_and_keep_their_age() {
        let old = TicketKeys::generate().expect("keys");
        for _ in 0..2 {
            let new = TicketKeys::generate().expect("keys");
            let mut exported = old.export();
            assert_ne!(new.export()[8..], exported[8..]);
            exported[..8].copy_from_slice(&3_u64.to_be_bytes());
            assert!(new.adopt(&exported));
            assert_eq!(new.export()[8..], exported[8..]);
            assert!((3..60).contains(&new.age().as_secs()), "{:?}", new.age());
            old.rotate().expect("a key");
        }
    }

    #[test]
    fn what_is_no_export_changes_nothing() {
        let keys = TicketKeys::generate().expect("keys");
        let before = keys.export();
        let one = before.clone();
        for wrong in [&[][..], &one[..8], &one[..one.len() - 1], &[&one[..], &[0]].concat(), &[0; 8 + 3 * 64]]
        {
            assert!(!keys.adopt(wrong), "{} bytes", wrong.len());
        }
        assert_eq!(keys.export()[8..], before[8..]);
    }
}
