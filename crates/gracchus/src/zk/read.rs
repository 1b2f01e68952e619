//! Commands that only look.

use super::options::Given;
use super::output::{CliError, Sink, check_path, hex_dump, text};
use super::{acl, json};
use base64::Engine as _;
use gracchus_zk_client::{ZkClient, ZkError};
use serde_json::json;

/// What every command gets.
pub(super) struct Context<'a> {
    pub(super) zk: &'a ZkClient,
    pub(super) sink: &'a mut Sink,
    pub(super) json: bool,
}

impl Context<'_> {
    fn print_json(&mut self, value: &serde_json::Value) {
        self.sink.out(&value.to_string());
    }
}

fn usage(text: &str) -> CliError {
    CliError::new(text)
}

/// `true` when a watch is wanted by the deprecated last word.
fn old_watch(c: &mut Context<'_>, given: &Given, name: &str, flags: &str) -> bool {
    if given.words.len() < 2 {
        return false;
    }
    c.sink.err(&format!(
        "'{name} path [watch]' has been deprecated. Please use '{name} {flags} path' instead."
    ));
    true
}

pub(super) async fn ls(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = given
        .word(0)
        .ok_or_else(|| usage("ls [-s] [-w] [-R] path"))?;
    let watch = old_watch(c, given, "ls", "[-w]") || given.has('w');
    check_path(path)?;
    if given.has('R') {
        return ls_recursive(c, path).await;
    }
    let (mut children, stat) =
        c.zk.get_children(path, watch)
            .await
            .map_err(|e| CliError::zk(e, path))?;
    children.sort_unstable();
    if c.json {
        let mut value = json!({ "path": path, "children": children });
        if given.has('s') {
            value["stat"] = json::stat(&stat);
        }
        c.print_json(&value);
        return Ok(());
    }
    c.sink.out(&format!("[{}]", children.join(", ")));
    if given.has('s') {
        c.sink.stat(&stat);
    }
    Ok(())
}

/// All children of a node, then for each what is below it. A node that vanishes on the way is left out.
async fn ls_recursive(c: &mut Context<'_>, path: &str) -> Result<(), CliError> {
    if c.json {
        let paths = subtree(c.zk, path).await?;
        c.print_json(&json!({ "path": path, "paths": paths }));
        return Ok(());
    }
    let mut open = vec![path.to_owned()];
    let mut is_first = true;
    while let Some(parent) = open.pop() {
        let mut children = match c.zk.get_children(&parent, false).await {
            Ok((children, _)) => children,
            Err(ZkError::NoNode) if !is_first => continue,
            Err(error) => return Err(CliError::zk(error, &parent)),
        };
        if is_first {
            c.sink.out(&parent);
            is_first = false;
        }
        children.sort_unstable();
        let children: Vec<String> = children.iter().map(|child| join(&parent, child)).collect();
        for child in &children {
            c.sink.out(child);
        }
        open.extend(children.into_iter().rev());
    }
    Ok(())
}

pub(super) fn join(parent: &str, child: &str) -> String {
    if parent == "/" {
        format!("/{child}")
    } else {
        format!("{parent}/{child}")
    }
}

/// A node and all below it, a level after the other; the requests of a level go out together.
pub(super) async fn subtree(zk: &ZkClient, path: &str) -> Result<Vec<String>, CliError> {
    const AT_ONCE: usize = 1000;
    let mut all = vec![path.to_owned()];
    let mut done = 0;
    while done < all.len() {
        let level: Vec<String> = all.iter().skip(done).take(AT_ONCE).cloned().collect();
        done += level.len();
        let replies: Vec<_> = level
            .iter()
            .map(|path| {
                zk.submit(gracchus_zk_client::Op::GetChildren {
                    path: path.clone(),
                    watch: false,
                })
            })
            .collect();
        for (parent, reply) in level.iter().zip(replies) {
            match reply.await.result {
                Ok(gracchus_zk_client::OpResult::Children(mut children, _)) => {
                    children.sort_unstable();
                    all.extend(children.iter().map(|child| join(parent, child)));
                }
                Ok(_) => return Err(CliError::zk(ZkError::SystemError, parent)),
                Err(ZkError::NoNode) if parent != path => {}
                Err(error) => return Err(CliError::zk(error, parent)),
            }
        }
    }
    Ok(all)
}

pub(super) async fn get(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let help = "get [-s] [-w] [-b] [-x] path
 -b   Output data in base64 format
 -s   Print znode stats additionally
 -w   Watch for changes on the znode
 -x   Output data in hexdump format
";
    let path = given.word(0).ok_or_else(|| usage(help))?;
    let watch = old_watch(c, given, "get", "[-s] [-w]") || given.has('w');
    check_path(path)?;
    let (data, stat) =
        c.zk.get_data(path, watch)
            .await
            .map_err(|e| CliError::zk(e, path))?;
    if c.json {
        c.print_json(&json::data(path, data.as_deref(), &stat));
        return Ok(());
    }
    let shown = match &data {
        Some(data) if given.has('b') => base64::engine::general_purpose::STANDARD.encode(data),
        Some(data) if given.has('x') => hex_dump(data),
        _ => text(data.as_deref()),
    };
    c.sink.out(&shown);
    if given.has('s') {
        c.sink.stat(&stat);
    }
    Ok(())
}

pub(super) async fn stat(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = given.word(0).ok_or_else(|| usage("stat [-w] path"))?;
    let watch = old_watch(c, given, "stat", "[-w]") || given.has('w');
    check_path(path)?;
    let stat =
        c.zk.exists(path, watch)
            .await
            .map_err(|e| CliError::zk(e, path))?
            .ok_or_else(|| CliError::zk(ZkError::NoNode, path))?;
    if c.json {
        c.print_json(&json!({ "path": path, "stat": json::stat(&stat) }));
    } else {
        c.sink.stat(&stat);
    }
    Ok(())
}

pub(super) async fn get_acl(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = given.word(0).ok_or_else(|| usage("getAcl [-s] path"))?;
    check_path(path)?;
    let (acls, stat) =
        c.zk.get_acl(path)
            .await
            .map_err(|e| CliError::zk(e, path))?;
    if c.json {
        c.print_json(&json::acl(path, &acls, &stat));
        return Ok(());
    }
    for entry in &acls {
        c.sink.out(&format!(
            "'{},'{}",
            entry.id.scheme,
            acl::escaped(&entry.id.id)
        ));
        c.sink.out(&format!(": {}", acl::letters(entry.perms)));
    }
    if given.has('s') {
        c.sink.stat(&stat);
    }
    Ok(())
}

pub(super) async fn get_all_children_number(
    c: &mut Context<'_>,
    given: &Given,
) -> Result<(), CliError> {
    let path = given
        .word(0)
        .ok_or_else(|| usage("getAllChildrenNumber path"))?;
    check_path(path)?;
    let number =
        c.zk.get_all_children_number(path)
            .await
            .map_err(|e| CliError::zk(e, path))?;
    c.sink.out(&number.to_string());
    Ok(())
}

/// Of this session only.
pub(super) async fn get_ephemerals(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let prefix = given.word(0).unwrap_or("/");
    check_path(prefix)?;
    let paths =
        c.zk.get_ephemerals(prefix)
            .await
            .map_err(|e| CliError::zk(e, prefix))?;
    c.sink.out(&format!("[{}]", paths.join(", ")));
    Ok(())
}

pub(super) async fn who_am_i(c: &mut Context<'_>) -> Result<(), CliError> {
    let clients =
        c.zk.who_am_i()
            .await
            .map_err(|e| CliError::new(format!("KeeperErrorCode = {e}")))?;
    c.sink.out("Auth scheme: User");
    for client in clients {
        c.sink.out(&format!("{}: {}", client.scheme, client.user));
    }
    Ok(())
}

/// The ensemble's dynamic configuration.
pub(super) async fn config(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = "/zookeeper/config";
    let (data, stat) =
        c.zk.get_data(path, given.has('w'))
            .await
            .map_err(|e| CliError::zk(e, path))?;
    c.sink
        .out(&data.map_or_else(String::new, |data| text(Some(&data))));
    if given.has('s') {
        c.sink.stat(&stat);
    }
    Ok(())
}

/// Whether the server knows the path: waits until this session has seen all writes before.
pub(super) async fn sync(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = given.word(0).ok_or_else(|| usage("sync path"))?;
    check_path(path)?;
    match c.zk.sync(path).await {
        Ok(()) => c.sink.out("Sync is OK"),
        Err(error) => c.sink.out(&format!("Sync has failed. rc={}", error.code())),
    }
    Ok(())
}
