// A WASI policy in Rust without any crate: refuses what carries the word that stands in settings.word.
// The word "panic" makes it panic, "loop" loop, "deep" recurse, "memory" take all memory that it can get.
use std::io::Read;

include!("word_policy.rs");

fn main() {
    let operation = std::env::args().nth(1).unwrap_or_default();
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).expect("stdin is text");
    match operation.as_str() {
        "validate" => print!("{}", judge(&input)),
        "validate-settings" => print!("{}", check_settings(&input)),
        _ => {
            eprintln!("no operation {}", operation);
            std::process::exit(2)
        }
    }
}
