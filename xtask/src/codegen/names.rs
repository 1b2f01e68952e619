//! Kafka's names as Rust's.

const KEYWORDS: [&str; 6] = ["type", "match", "ref", "move", "self", "in"];

/// `BaseOffset` -> `base_offset`; `Type` -> `type_`; `isKRaftController` -> `is_kraft_controller`.
pub fn snake_case(name: &str) -> String {
    let name = name.replace("KRaft", "Kraft");
    let mut out = String::new();
    for (index, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() {
            if index > 0 {
                out.push('_');
            }
            out.push(letter.to_ascii_lowercase());
        } else {
            out.push(letter);
        }
    }
    if KEYWORDS.contains(&out.as_str()) {
        out.push('_');
    }
    out
}
