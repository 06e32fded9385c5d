// What both policies do. A word is found by its key, without reading the rest as JSON.

fn find_word(text: &str) -> Option<&str> {
    let start = text.rfind("\"word\":\"")? + 8;
    let end = text[start..].find('"')?;
    Some(&text[start..start + end])
}

fn check_settings(settings: &str) -> String {
    match find_word(settings) {
        Some(_) => "{\"valid\":true}".to_string(),
        None => "{\"valid\":false,\"message\":\"word is missing\"}".to_string(),
    }
}

fn judge(review: &str) -> String {
    let word = find_word(review).unwrap_or("");
    match word {
        "panic" => panic!("a bug of the policy"),
        "loop" => spin(),
        "deep" => return format!("{{\"accepted\":{}}}", descend(1) > 0),
        "memory" => return format!("{{\"accepted\":true,\"message\":\"{} MiB\"}}", take_memory()),
        _ => (),
    }
    if review.matches(word).count() > 1 {
        return format!("{{\"accepted\":false,\"message\":\"{} is not allowed\",\"code\":403}}", word);
    }
    "{\"accepted\":true}".to_string()
}

fn spin() {
    let mut turns = 0u64;
    loop {
        turns = turns.wrapping_add(1);
        unsafe { std::ptr::write_volatile(&mut turns, turns) };
    }
}

fn descend(depth: u64) -> u64 {
    let mut room = [depth; 32];
    unsafe { std::ptr::write_volatile(&mut room[3], depth) };
    if depth == u64::MAX { 0 } else { descend(depth + 1) + room[(depth % 32) as usize] }
}

fn take_memory() -> usize {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut piece: Vec<u8> = Vec::new();
        if piece.try_reserve_exact(1 << 20).is_err() {
            return taken.len();
        }
        piece.resize(1 << 20, 1);
        taken.push(piece);
    }
}
