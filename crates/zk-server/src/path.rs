//! Rules for znode paths.
//!
//! The root is known as both `/` and the empty path; inside the server it is the empty one.

/// Why a path is not a legal znode path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a legal znode path")]
pub struct BadPath;

/// The nodes that no client may delete.
pub fn is_built_in(path: &str) -> bool {
    matches!(
        path,
        "" | "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config"
    )
}

/// The key under which the tree keeps `path`.
pub fn key(path: &str) -> &str {
    if path == "/" { "" } else { path }
}

/// The path that clients use for a tree key.
pub fn shown(key: &str) -> &str {
    if key.is_empty() { "/" } else { key }
}

/// The parent's key: what stands before the last slash. `None` without a slash.
pub fn parent(path: &str) -> Option<&str> {
    path.rfind('/').and_then(|at| path.get(..at))
}

/// The node's own name: what stands behind the last slash.
pub fn name(path: &str) -> &str {
    path.rfind('/')
        .and_then(|at| path.get(at + 1..))
        .unwrap_or(path)
}

/// Characters that ZooKeeper refuses, seen as UTF-16 units: whatever lies beyond the BMP is a surrogate pair and thus refused.
fn is_illegal(c: char) -> bool {
    matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// Checks the whole syntax: absolute, no trailing slash, no empty or relative component, no illegal character.
pub fn validate(path: &str) -> Result<(), BadPath> {
    let rest = path.strip_prefix('/').ok_or(BadPath)?;
    if rest.is_empty() {
        return Ok(());
    }
    for component in rest.split('/') {
        if matches!(component, "" | "." | "..") {
            return Err(BadPath);
        }
        // Bytes of printable ASCII are the common case and all legal.
        if !component.bytes().all(|b| (0x20..0x7f).contains(&b))
            && component.chars().any(is_illegal)
        {
            return Err(BadPath);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax() {
        for good in [
            "/",
            "/a",
            "/a/b",
            "/...",
            "/a b",
            "/\u{a0}",
            "/é",
            "/中",
            "/\u{f900}",
        ] {
            assert_eq!(validate(good), Ok(()), "{good:?}");
        }
        for bad in [
            "",
            "a",
            "/a/",
            "//",
            "/a//b",
            "/.",
            "/a/..",
            "/a\0",
            "/\u{1}",
            "/\u{1f}",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{f8ff}",
            "/\u{fff0}",
            "/\u{fffd}",
            "/\u{1f600}",
        ] {
            assert_eq!(validate(bad), Err(BadPath), "{bad:?}");
        }
    }

    #[test]
    fn families() {
        assert_eq!(parent("/a"), Some(""));
        assert_eq!(parent("/a/b"), Some("/a"));
        assert_eq!(parent("/"), Some(""));
        assert_eq!(parent("a"), None);
        assert_eq!(name("/a/b"), "b");
        assert_eq!(key("/"), "");
        assert_eq!(shown(""), "/");
    }
}
