//! C entry points for package hf, built into the library of the Go module
//! github.com/daulet/tokenizers as one more file of its crate: two Rust static
//! libraries in one program would clash, so this must be part of that one.
//!
//! Its own entry points take text as a C string (a NUL ends it), always collect
//! offsets and one string per token, and turn each failure into an empty
//! result. These take a length, use encode_fast (ids only) and say what failed.
//!
//! A handle may be used by any number of threads at once, until it is freed.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;
use tokenizers::tokenizer::Tokenizer;

/// Memory of this library; `warmpath_free_bytes` gives it back.
#[repr(C)]
pub struct WarmpathBytes {
    data: *mut u8,
    len: usize,
}

/// Memory of this library; `warmpath_free_ids` gives it back.
#[repr(C)]
pub struct WarmpathIds {
    data: *mut u32,
    len: usize,
}

/// Hands a vector over. Nothing is a null pointer: Go stops the program when it
/// finds the small numbers that stand for empty vectors in Rust on its stack.
fn leak<T>(v: Vec<T>) -> (*mut T, usize) {
    if v.is_empty() {
        return (std::ptr::null_mut(), 0);
    }
    let boxed = v.into_boxed_slice();
    let len = boxed.len();
    (Box::into_raw(boxed).cast(), len)
}

unsafe fn reclaim<T>(data: *mut T, len: usize) {
    if !data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, len)));
    }
}

fn bytes_of(text: String) -> WarmpathBytes {
    let (data, len) = leak(text.into_bytes());
    WarmpathBytes { data, len }
}

/// Borrows what the caller passed; an empty Go slice may come as a null pointer.
unsafe fn view<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, len)
    }
}

fn panic_text(cause: Box<dyn Any + Send>) -> String {
    let text = cause
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| cause.downcast_ref::<String>().cloned());
    format!("panic: {}", text.unwrap_or_default())
}

/// Runs `f`; a failure or a panic goes to `error` as text.
unsafe fn guarded<T>(error: *mut WarmpathBytes, f: impl FnOnce() -> Result<T, String>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|cause| Err(panic_text(cause))) {
        Ok(value) => Some(value),
        Err(text) => {
            *error = bytes_of(text);
            None
        }
    }
}

/// Reads a tokenizer.json. Null and `error` set when it can't be read.
#[no_mangle]
pub unsafe extern "C" fn warmpath_load(data: *const u8, len: usize, error: *mut WarmpathBytes) -> *mut Tokenizer {
    let load = || Tokenizer::from_bytes(view(data, len)).map_err(|e| e.to_string());
    guarded(error, load).map_or(std::ptr::null_mut(), |t| Box::into_raw(Box::new(t)))
}

/// Ids of a text in UTF-8. False and `error` set when there are none to give.
#[no_mangle]
pub unsafe extern "C" fn warmpath_encode(
    tokenizer: *const Tokenizer,
    text: *const u8,
    len: usize,
    add_special: bool,
    ids: *mut WarmpathIds,
    error: *mut WarmpathBytes,
) -> bool {
    let encode = || {
        let text = std::str::from_utf8(view(text, len)).map_err(|e| e.to_string())?;
        let encoding = (*tokenizer).encode_fast(text, add_special).map_err(|e| e.to_string())?;
        Ok(encoding.get_ids().to_vec())
    };
    guarded(error, encode).map_or(false, |v| {
        let (data, len) = leak(v);
        *ids = WarmpathIds { data, len };
        true
    })
}

/// Text of ids; special tokens stay in it.
#[no_mangle]
pub unsafe extern "C" fn warmpath_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    len: usize,
    text: *mut WarmpathBytes,
    error: *mut WarmpathBytes,
) -> bool {
    let decode = || (*tokenizer).decode(view(ids, len), false).map_err(|e| e.to_string());
    guarded(error, decode).map_or(false, |decoded| {
        *text = bytes_of(decoded);
        true
    })
}

#[no_mangle]
pub unsafe extern "C" fn warmpath_free(tokenizer: *mut Tokenizer) {
    drop(Box::from_raw(tokenizer));
}

#[no_mangle]
pub unsafe extern "C" fn warmpath_free_bytes(bytes: WarmpathBytes) {
    reclaim(bytes.data, bytes.len);
}

#[no_mangle]
pub unsafe extern "C" fn warmpath_free_ids(ids: WarmpathIds) {
    reclaim(ids.data, ids.len);
}
