//! A swap that is interrupted.

use super::*;

/// The swap, killed after each of its renames: the log opened then is either the old one or the new one, and what is
/// read from it, by key, is the same.
#[test]
fn killed_at_every_step_of_the_swap() {
    let root = tempfile::tempdir().unwrap();
    let room = Room::new(root.path(), config(), 1 << 20);
    for n in 0..30 {
        room.put(1, &format!("k{}", n % 4), Some(&n.to_string()));
        if n % 3 == 2 {
            room.roll();
        }
    }
    let dir = room.log.lock().dir().to_path_buf();
    let before = tempfile::tempdir().unwrap();
    copy_dir(&dir, before.path());
    room.clean(2);
    room.manager.run_file_deletion_once(i64::MAX);
    let after = files(&dir);
    let old = files(before.path());
    let expected = room.records();
    let end = room.log.lock().log_end_offset();
    let segment = |name: &str| name.ends_with(".log") || name.ends_with("index");
    let names = |all: &BTreeMap<std::path::PathBuf, Vec<u8>>| -> Vec<String> {
        let mut names: Vec<String> = all
            .keys()
            .map(|p| p.display().to_string())
            .filter(|n| segment(n))
            .collect();
        // The order of the renames: the log file first.
        names.sort_by_key(|n| (!n.ends_with(".log"), n.clone()));
        names
    };
    let active = format!("{end:020}");
    let new_names: Vec<String> = names(&after)
        .into_iter()
        .filter(|n| !n.starts_with(&active))
        .collect();
    let old_names: Vec<String> = names(&old)
        .into_iter()
        .filter(|n| !n.starts_with(&active))
        .collect();
    assert!(new_names.len() < old_names.len());
    // All states on the way: so many files still .cleaned, .swap, so many old ones .deleted.
    let steps = 2 * new_names.len() + old_names.len();
    for step in 0..=steps {
        let at = tempfile::tempdir().unwrap();
        let write =
            |name: String, bytes: &[u8]| std::fs::write(at.path().join(name), bytes).unwrap();
        let (n, o) = (new_names.len(), old_names.len());
        for (name, bytes) in &old {
            let name = name.display().to_string();
            match old_names.iter().position(|x| *x == name) {
                Some(i) if step > n + i => write(format!("{name}.deleted"), bytes),
                _ => write(name, bytes),
            }
        }
        for (i, name) in new_names.iter().enumerate() {
            let suffix = match step {
                s if s > n + o + i => "",
                s if s > i => ".swap",
                _ => ".cleaned",
            };
            write(format!("{name}{suffix}"), &after[Path::new(name)]);
        }
        for clean in [false, true] {
            let copy = tempfile::tempdir().unwrap();
            copy_dir(at.path(), copy.path());
            let mut log = open(copy.path(), &room.config, |o| o.clean = clean);
            assert_eq!(log.log_end_offset(), end, "step {step}");
            let text = |b: Option<Vec<u8>>| b.map(|b| String::from_utf8(b).unwrap());
            let got: BTreeMap<_, _> = records(&read_all(&mut log, 0))
                .into_iter()
                .map(|(_, k, v)| (text(k), text(v)))
                .collect();
            let expected: BTreeMap<_, _> = expected
                .iter()
                .map(|(_, k, v)| (Some(k.clone()), v.clone()))
                .collect();
            assert_eq!(got, expected, "step {step}, clean {clean}");
            let left: Vec<_> = files(copy.path())
                .into_keys()
                .filter(|p| {
                    p.extension()
                        .is_some_and(|e| e == "swap" || e == "cleaned" || e == "deleted")
                })
                .collect();
            assert!(left.is_empty(), "step {step}: {left:?}");
        }
    }
}
