//! The figures of several brokers as one text.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Prometheus' text of one broker as it is; of several, the lines of each figure together, with the label `broker`.
pub fn of_brokers(texts: &[String]) -> String {
    if let [only] = texts {
        return only.clone();
    }
    // figure -> its head and its samples; the head comes from whoever has it first
    let mut figures: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for (id, text) in texts.iter().enumerate() {
        let mut figure = "";
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# ") {
                figure = head.split(' ').nth(1).unwrap_or(figure);
                let (known, _) = figures.entry(figure).or_default();
                if !known.lines().any(|l| l == line) {
                    let _ = writeln!(known, "{line}");
                }
                continue;
            }
            let (_, samples) = figures.entry(figure).or_default();
            let _ = match line.split_once('{') {
                Some((name, rest)) => writeln!(samples, "{name}{{broker=\"{id}\",{rest}"),
                None => {
                    let (name, value) = line.split_once(' ').unwrap_or((line, ""));
                    writeln!(samples, "{name}{{broker=\"{id}\"}} {value}")
                }
            };
        }
    }
    figures
        .into_values()
        .map(|(head, samples)| head + &samples)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::of_brokers;

    #[test]
    fn the_lines_of_a_figure_stay_together() {
        let text = |n: i32| {
            format!(
                "# TYPE b gauge\nb {n}\n# TYPE a counter\na{{topic=\"t\"}} {n}\na{{topic=\"u\"}} 0\n"
            )
        };
        assert_eq!(of_brokers(&[text(1)]), text(1));
        assert_eq!(
            of_brokers(&[text(1), text(2), String::new()]),
            "# TYPE a counter\na{broker=\"0\",topic=\"t\"} 1\na{broker=\"0\",topic=\"u\"} 0\n\
             a{broker=\"1\",topic=\"t\"} 2\na{broker=\"1\",topic=\"u\"} 0\n\
             # TYPE b gauge\nb{broker=\"0\"} 1\nb{broker=\"1\"} 2\n"
        );
    }
}
