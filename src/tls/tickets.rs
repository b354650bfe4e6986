//! With which keys are session tickets sealed?
//!
//! The keys live as long as the process and are shared by every context of every snapshot, so that a
//! session resumes on another worker, under another certificate of ours and after a reload. They are
//! never written anywhere. When to rotate them is the business of `background::ticket_rotation`.

use boring::error::ErrorStack;
use boring::hash::MessageDigest;
use boring::hmac::HmacCtxRef;
use boring::memcmp;
use boring::rand::rand_bytes;
use boring::ssl::{SslContextBuilder, TicketKeyCallbackResult};
use boring::symm::{Cipher, CipherCtxRef};
use parking_lot::RwLock;
use std::sync::Arc;

/// The ticket keys of the process; clones share them.
#[derive(Clone)]
pub struct TicketKeys(Arc<RwLock<Ring>>);

/// The key that seals, and the one before it, whose tickets still open.
struct Ring {
    current: TicketKey,
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
        let ring = Ring { current: TicketKey::generate()?, previous: None };
        Ok(TicketKeys(Arc::new(RwLock::new(ring))))
    }

    /// Seals with a new key from now on. Tickets of the key used until now still open, and are renewed
    /// when they are used; older ones no longer do.
    pub fn rotate(&self) -> Result<(), ErrorStack> {
        let fresh = TicketKey::generate()?;
        let mut ring = self.0.write();
        ring.previous = Some(std::mem::replace(&mut ring.current, fresh));
        Ok(())
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
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKeys(..)")
    }
}
