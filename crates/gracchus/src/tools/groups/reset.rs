//! New offsets for a group without members.

use super::{Options, chosen, partitions, print_error, time};
use crate::tools::Failure;
use gracchus_client::TopicPartition;
use gracchus_client::admin::{Admin, Committed, IsolationLevel, OffsetSpec};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

type Offsets = BTreeMap<TopicPartition, i64>;

pub(super) async fn run(o: &Options, admin: &Admin) -> Result<(), Failure> {
    if !o.dry_run && !o.execute {
        eprintln!(
            "WARN: No action will be performed as the --execute option is missing. In a future major release, the default behavior of this command will be to prompt the user before executing the reset rather than doing a dry run. You should add the --dry-run option explicitly if you are scripting this command and want to keep the current default behavior without prompting."
        );
    }
    let groups = chosen(o, admin).await?;
    let mut results = BTreeMap::new();
    for (group, described) in admin.describe_groups(&groups).await? {
        let state = described?.state;
        if state != "Empty" && state != "Dead" {
            print_error(&format!(
                "Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
            ));
            results.insert(group, Offsets::new());
            continue;
        }
        let scope = scope(o, admin, &group).await?;
        let offsets = plan(o, admin, &group, scope).await?;
        if o.execute {
            let commits: Vec<_> = offsets
                .iter()
                .map(|(tp, offset)| {
                    let committed = Committed {
                        offset: *offset,
                        leader_epoch: -1,
                        metadata: String::new(),
                    };
                    (tp.clone(), committed)
                })
                .collect();
            if !commits.is_empty() {
                for (_, result) in admin.alter_offsets(&group, &commits).await? {
                    result?;
                }
            }
        }
        results.insert(group, offsets);
    }
    print(o, &results)?;
    Ok(())
}

fn print(o: &Options, results: &BTreeMap<String, Offsets>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if o.export {
        // one group asked for by name has no group column
        let single = o.group.len() == 1;
        for (group, offsets) in results {
            for (tp, offset) in offsets {
                if !single {
                    write!(out, "{group},")?;
                }
                writeln!(out, "{},{},{offset}", tp.topic, tp.partition)?;
            }
        }
        return writeln!(out);
    }
    if results.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<30} {:<30} {:<10} {:<15}",
        "GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"
    )?;
    for (group, offsets) in results {
        for (tp, offset) in offsets {
            writeln!(
                out,
                "{group:<30} {:<30} {:<10} {offset:<15}",
                tp.topic, tp.partition
            )?;
        }
    }
    Ok(())
}

async fn scope(o: &Options, admin: &Admin, group: &str) -> Result<Vec<TopicPartition>, Failure> {
    if o.all_topics {
        let committed = admin.committed_offsets(group, None).await?;
        return Ok(committed.into_keys().collect());
    }
    if !o.topic.is_empty() {
        return partitions(admin, &o.topic).await;
    }
    if o.from_file.is_none() {
        return Err(Failure::usage(
            "One of the reset scopes should be defined: --all-topics, --topic.",
        ));
    }
    Ok(Vec::new())
}

async fn listed(
    admin: &Admin,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
) -> Result<Offsets, Failure> {
    let wanted: Vec<_> = partitions.iter().map(|tp| (tp.clone(), spec)).collect();
    let mut out = Offsets::new();
    for (tp, listed) in admin
        .list_offsets(&wanted, IsolationLevel::ReadUncommitted)
        .await?
    {
        out.insert(tp, listed?.offset);
    }
    Ok(out)
}

/// The first offset at or after a time; the end where there is none.
async fn at_time(
    admin: &Admin,
    partitions: &[TopicPartition],
    ms: i64,
) -> Result<Offsets, Failure> {
    let mut offsets = listed(admin, partitions, OffsetSpec::AtOrAfter(ms)).await?;
    let none: Vec<_> = offsets
        .iter()
        .filter(|(_, offset)| **offset < 0)
        .map(|(tp, _)| tp.clone())
        .collect();
    for tp in &none {
        println!(
            "\nWarn: Partition {} from topic {} is empty. Falling back to latest known offset.",
            tp.partition, tp.topic
        );
    }
    offsets.extend(listed(admin, &none, OffsetSpec::Latest).await?);
    Ok(offsets)
}

/// Offsets outside of the log become its nearest bound.
async fn within_log(admin: &Admin, wanted: Offsets) -> Result<Offsets, Failure> {
    let partitions: Vec<_> = wanted.keys().cloned().collect();
    let starts = listed(admin, &partitions, OffsetSpec::Earliest).await?;
    let ends = listed(admin, &partitions, OffsetSpec::Latest).await?;
    Ok(wanted
        .into_iter()
        .map(|(tp, offset)| {
            let start = starts.get(&tp).copied().unwrap_or(offset);
            let end = ends.get(&tp).copied().unwrap_or(offset);
            if offset > end {
                eprintln!("WARN New offset ({offset}) is higher than latest offset for topic partition {tp}. Value will be set to {end}");
                (tp, end)
            } else if offset < start {
                eprintln!("WARN New offset ({offset}) is lower than earliest offset for topic partition {tp}. Value will be set to {start}");
                (tp, start)
            } else {
                (tp, offset)
            }
        })
        .collect())
}

async fn plan(
    o: &Options,
    admin: &Admin,
    group: &str,
    scope: Vec<TopicPartition>,
) -> Result<Offsets, Failure> {
    if let Some(offset) = o.to_offset {
        let wanted = scope.into_iter().map(|tp| (tp, offset)).collect();
        return within_log(admin, wanted).await;
    }
    if o.to_earliest {
        return listed(admin, &scope, OffsetSpec::Earliest).await;
    }
    if o.to_latest {
        return listed(admin, &scope, OffsetSpec::Latest).await;
    }
    if let Some(text) = &o.to_datetime {
        let ms = time::datetime(text).ok_or_else(|| {
            Failure::usage(format!(
                "'{text}' is not a time: YYYY-MM-DDTHH:mm:SS.sss is wanted"
            ))
        })?;
        return at_time(admin, &scope, ms).await;
    }
    if let Some(text) = &o.by_duration {
        let back = time::duration(text).ok_or_else(|| {
            Failure::usage(format!("'{text}' is not a duration: PnDTnHnMnS is wanted"))
        })?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as i64);
        return at_time(admin, &scope, now.saturating_sub(back)).await;
    }
    if let Some(path) = &o.from_file {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::other(format!("{}: {e}", path.display())))?;
        let mut all = from_csv(&text, o.group.first().filter(|_| o.group.len() == 1))?;
        let Some(wanted) = all.remove(group) else {
            print_error(&format!("No reset plan for group {group} found"));
            return Ok(Offsets::new());
        };
        return within_log(admin, wanted).await;
    }
    let committed = admin.committed_offsets(group, None).await?;
    if let Some(by) = o.shift_by {
        let mut wanted = Offsets::new();
        for tp in scope {
            let Some(current) = committed.get(&tp) else {
                return Err(Failure::usage(format!(
                    "Cannot shift offset for partition {tp} since there is no current committed offset"
                )));
            };
            wanted.insert(tp, current.offset.saturating_add(by));
        }
        return within_log(admin, wanted).await;
    }
    if o.to_current {
        let mut out = Offsets::new();
        let mut none = Vec::new();
        for tp in scope {
            match committed.get(&tp) {
                Some(c) => drop(out.insert(tp, c.offset)),
                None => none.push(tp),
            }
        }
        out.extend(listed(admin, &none, OffsetSpec::Latest).await?);
        return Ok(out);
    }
    Err(Failure::usage(
        "Option '[reset-offsets]' requires one of the following scenarios: [to-offset], [to-latest], [to-current], [to-earliest], [shift-by], [from-file], [by-duration], [to-datetime]",
    ))
}

/// `topic,partition,offset` of the one group, or `group,topic,partition,offset`.
fn from_csv(text: &str, group: Option<&String>) -> Result<BTreeMap<String, Offsets>, Failure> {
    let mut out: BTreeMap<String, Offsets> = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let cells: Vec<_> = line
            .split(',')
            .map(|c| c.trim().trim_matches('"'))
            .collect();
        let (group, rest) = match (cells.as_slice(), group) {
            ([topic, partition, offset], Some(group)) => {
                (group.as_str(), [*topic, *partition, *offset])
            }
            ([group, topic, partition, offset], _) => (*group, [*topic, *partition, *offset]),
            _ => {
                return Err(Failure::usage(format!(
                    "Not a line of a reset plan: {line}"
                )));
            }
        };
        let [topic, partition, offset] = rest;
        let (Ok(partition), Ok(offset)) = (partition.parse(), offset.parse()) else {
            return Err(Failure::usage(format!(
                "Not a line of a reset plan: {line}"
            )));
        };
        out.entry(group.to_owned())
            .or_default()
            .insert(TopicPartition::new(topic, partition), offset);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_with_and_without_a_group() {
        let group = "g".to_owned();
        let one = from_csv("t,0,5\n\nt,1,6\n", Some(&group)).unwrap();
        assert_eq!(one["g"][&TopicPartition::new("t", 1)], 6);
        let two = from_csv("\"a\",t,0,5\nb,t,0,7", None).unwrap();
        assert_eq!(two["b"][&TopicPartition::new("t", 0)], 7);
        for bad in ["t,0", "a,t,x,5"] {
            assert!(from_csv(bad, Some(&group)).is_err());
        }
        assert!(from_csv("t,0,5", None).is_err());
    }
}
