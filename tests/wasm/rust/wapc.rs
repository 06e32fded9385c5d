// A waPC policy in Rust without any crate: refuses what carries the word that stands in settings.word.
// The word "panic" makes it panic, "loop" loop, "deep" recurse, "memory" take all memory that it can get.

#[link(wasm_import_module = "wapc")]
extern "C" {
    fn __guest_request(operation: *mut u8, payload: *mut u8);
    fn __guest_response(text: *const u8, length: usize);
    fn __guest_error(text: *const u8, length: usize);
}

include!("word_policy.rs");

#[no_mangle]
pub extern "C" fn __guest_call(operation_length: usize, payload_length: usize) -> i32 {
    let (mut operation, mut payload) = (vec![0u8; operation_length], vec![0u8; payload_length]);
    unsafe { __guest_request(operation.as_mut_ptr(), payload.as_mut_ptr()) };
    let payload = String::from_utf8_lossy(&payload).into_owned();
    let (text, ok) = match operation.as_slice() {
        b"validate" => (judge(&payload), true),
        b"validate_settings" => (check_settings(&payload), true),
        b"protocol_version" => ("\"v1\"".to_string(), true),
        _ => ("no such operation".to_string(), false),
    };
    unsafe {
        if ok {
            __guest_response(text.as_ptr(), text.len());
        } else {
            __guest_error(text.as_ptr(), text.len());
        }
    }
    ok as i32
}
