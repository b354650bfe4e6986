//! A further certificate of a context, for clients that can verify it.
//!
//! The library goes through a context's credentials and takes the first whose key can sign for the client, by
//! its signature algorithms (RFC 8446 section 4.2.3) and suites. The bindings have no safe interface for that.

use super::candidates::Candidate;
use boring::error::ErrorStack;
use boring::ssl::SslContextBuilder;
use foreign_types_shared::ForeignType;
use std::ptr::{self, NonNull};

/// A chain, its key and its OCSP response.
pub struct Credential(NonNull<boring_sys::SSL_CREDENTIAL>);

/// Bytes as the library shares them.
struct Buffer(NonNull<boring_sys::CRYPTO_BUFFER>);

impl Credential {
    /// What a candidate presents.
    ///
    /// # Errors
    /// For want of memory, or for a key that does not belong to the chain.
    pub fn new(candidate: &Candidate) -> Result<Credential, ErrorStack> {
        // SAFETY: takes nothing and gives a reference that is ours.
        let credential = Credential(ours(unsafe { boring_sys::SSL_CREDENTIAL_new_x509() })?);
        let this = credential.0.as_ptr();
        let chain = candidate.pair.chain.iter().map(|it| Buffer::new(&it.to_der()?));
        let chain = chain.collect::<Result<Vec<_>, _>>()?;
        let certificates: Vec<_> = chain.iter().map(|certificate| certificate.0.as_ptr()).collect();
        // SAFETY: all pointers are valid for the call, which takes references of its own to the buffers.
        done(unsafe {
            boring_sys::SSL_CREDENTIAL_set1_cert_chain(this, certificates.as_ptr(), certificates.len())
        })?;
        // SAFETY: both pointers are valid for the call, which takes a reference of its own to the key.
        done(unsafe { boring_sys::SSL_CREDENTIAL_set1_private_key(this, candidate.pair.key.as_ptr()) })?;
        if let Some(response) = candidate.ocsp.as_ref().and_then(|response| response.stapled.as_ref()) {
            let response = Buffer::new(response)?;
            // SAFETY: as for the chain.
            done(unsafe { boring_sys::SSL_CREDENTIAL_set1_ocsp_response(this, response.0.as_ptr()) })?;
        }
        Ok(credential)
    }

    /// Makes it one of the context's, behind those it has and before its own certificate.
    ///
    /// # Errors
    /// For want of memory.
    pub fn add_to(&self, context: &mut SslContextBuilder) -> Result<(), ErrorStack> {
        // SAFETY: both pointers are valid for the call, which takes a reference of its own to the credential.
        done(unsafe { boring_sys::SSL_CTX_add1_credential(context.as_ptr(), self.0.as_ptr()) })
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and given up once.
        unsafe { boring_sys::SSL_CREDENTIAL_free(self.0.as_ptr()) }
    }
}

impl Buffer {
    fn new(bytes: &[u8]) -> Result<Buffer, ErrorStack> {
        // SAFETY: the bytes are copied, no pool is used, and the reference given is ours.
        let buffer = unsafe { boring_sys::CRYPTO_BUFFER_new(bytes.as_ptr(), bytes.len(), ptr::null_mut()) };
        ours(buffer).map(Buffer)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and given up once.
        unsafe { boring_sys::CRYPTO_BUFFER_free(self.0.as_ptr()) }
    }
}

fn ours<T>(pointer: *mut T) -> Result<NonNull<T>, ErrorStack> {
    NonNull::new(pointer).ok_or_else(ErrorStack::get)
}

fn done(code: std::ffi::c_int) -> Result<(), ErrorStack> {
    if code == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}
