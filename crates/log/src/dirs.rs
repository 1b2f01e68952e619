//! The log directories: locks, identity, online or offline.

use crate::disk;
use crate::error::{LogError, StartError};
use crate::identity::{META_PROPERTIES, MetaProperties};
use parking_lot::Mutex;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const LOCK: &str = ".lock";
/// There after a clean stop only; deleted at the start.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// As Kafka writes it in ZooKeeper mode.
const CLEAN_SHUTDOWN_CONTENT: &[u8] = br#"{"version":0,"brokerEpoch":-1}"#;

/// What the directories say about whom they belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredIdentity {
    pub cluster_id: Option<String>,
    pub broker_id: Option<i32>,
}

/// One log directory.
#[derive(Debug)]
pub(crate) struct LogDir {
    pub path: PathBuf,
    pub offline: Arc<AtomicBool>,
    /// Names in it have changed since it was flushed last.
    pub renamed: AtomicBool,
    lock: Mutex<Option<File>>,
    meta: Option<MetaProperties>,
}

/// `log.dirs`, locked for this process.
#[derive(Debug)]
pub struct LogDirs {
    pub(crate) dirs: Vec<LogDir>,
    identity: StoredIdentity,
}

impl LogDirs {
    /// Creates what is missing, locks each, reads meta.properties; changes nothing else. A directory that fails for an
    /// I/O error is offline; a lock held by another process fails all, and so do all directories failing.
    pub fn open(dirs: &[PathBuf]) -> Result<Self, StartError> {
        if dirs.is_empty() {
            return Err(StartError::NoDirs);
        }
        let mut opened = Vec::new();
        let mut failures = Vec::new();
        for path in dirs {
            if opened.iter().any(|d: &LogDir| d.path == *path) {
                continue;
            }
            match LogDir::open(path) {
                Ok(dir) => opened.push(dir),
                Err(StartError::Log(error)) => {
                    tracing::error!("the log directory {} is left out: {error}", path.display());
                    failures.push(error.to_string());
                    opened.push(LogDir::failed(path));
                }
                Err(error) => return Err(error),
            }
        }
        if failures.len() == opened.len() {
            return Err(StartError::AllFailed(failures.join("; ")));
        }
        let identity = agree(&opened)?;
        Ok(Self {
            dirs: opened,
            identity,
        })
    }

    /// From meta.properties of all directories, which agree.
    pub fn identity(&self) -> &StoredIdentity {
        &self.identity
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.dirs.iter().map(|d| d.path.as_path())
    }

    /// Compares with ZooKeeper's cluster id and the configured broker id.
    pub fn check_identity(&self, cluster_id: &str, broker_id: i32) -> Result<(), StartError> {
        for dir in &self.dirs {
            let Some(meta) = &dir.meta else { continue };
            let path = dir.path.join(META_PROPERTIES);
            if let Some(stored) = &meta.cluster_id
                && stored != cluster_id
            {
                return Err(StartError::ClusterId {
                    path,
                    stored: stored.clone(),
                    expected: cluster_id.to_string(),
                });
            }
            if let Some(stored) = meta.broker_id
                && stored != broker_id
            {
                return Err(StartError::BrokerId {
                    path,
                    stored,
                    expected: broker_id,
                });
            }
        }
        Ok(())
    }

    /// Writes meta.properties where it is missing or incomplete; call when the start is sure to go on.
    pub fn write_identity(
        &self,
        cluster_id: &str,
        broker_id: i32,
        now_ms: i64,
    ) -> Result<(), StartError> {
        self.check_identity(cluster_id, broker_id)?;
        for dir in self.dirs.iter().filter(|d| !d.is_offline()) {
            let wanted = MetaProperties {
                broker_id: Some(broker_id),
                cluster_id: Some(cluster_id.to_string()),
                directory_id: dir.meta.as_ref().and_then(|m| m.directory_id.clone()),
            };
            if dir.meta.as_ref() != Some(&wanted) {
                wanted.write(&dir.path, now_ms)?;
            }
        }
        Ok(())
    }
}

/// All directories name the same cluster and broker, or none.
fn agree(dirs: &[LogDir]) -> Result<StoredIdentity, StartError> {
    let mut identity = StoredIdentity::default();
    let (mut cluster_at, mut broker_at) = (PathBuf::new(), PathBuf::new());
    for dir in dirs {
        let Some(meta) = &dir.meta else { continue };
        let path = dir.path.join(META_PROPERTIES);
        let mixed = |key, left: String, right: String, left_path: &Path| StartError::Mixed {
            key,
            left,
            left_path: left_path.to_path_buf(),
            right,
            right_path: path.clone(),
        };
        if let Some(id) = &meta.cluster_id {
            match &identity.cluster_id {
                Some(other) if other != id => {
                    return Err(mixed("cluster.id", other.clone(), id.clone(), &cluster_at));
                }
                _ => identity.cluster_id = Some(id.clone()),
            }
            cluster_at.clone_from(&path);
        }
        if let Some(id) = meta.broker_id {
            match identity.broker_id {
                Some(other) if other != id => {
                    return Err(mixed(
                        "broker.id",
                        other.to_string(),
                        id.to_string(),
                        &broker_at,
                    ));
                }
                _ => identity.broker_id = Some(id),
            }
            broker_at.clone_from(&path);
        }
    }
    Ok(identity)
}

impl LogDir {
    fn open(path: &Path) -> Result<Self, StartError> {
        std::fs::create_dir_all(path).map_err(|e| LogError::io("create", path, e))?;
        let lock_path = path.join(LOCK);
        let lock = match disk::open(&lock_path, true) {
            // A full disk has no room for the lock's file: the directory itself is locked.
            Err(error) if error.is_out_of_space() => disk::open_read(path)?,
            opened => opened?,
        };
        disk::lock_exclusive(&lock)
            .map_err(|e| LogError::io("lock", &lock_path, e))?
            .ok_or_else(|| StartError::Locked {
                dir: path.to_path_buf(),
            })?;
        // Listing tells a directory that cannot be read before anything is decided.
        std::fs::read_dir(path).map_err(|e| LogError::io("list", path, e))?;
        Ok(Self {
            path: path.to_path_buf(),
            offline: Arc::default(),
            renamed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
            meta: MetaProperties::read(path)?,
        })
    }

    fn failed(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            offline: Arc::new(AtomicBool::new(true)),
            renamed: AtomicBool::new(false),
            lock: Mutex::new(None),
            meta: None,
        }
    }

    pub(crate) fn is_offline(&self) -> bool {
        self.offline.load(SeqCst)
    }

    /// True if it was online until now.
    pub(crate) fn set_offline(&self) -> bool {
        !self.offline.swap(true, SeqCst)
    }

    /// Whether the last stop was clean. The file goes, so that a crash from now on is seen.
    pub(crate) fn take_clean_shutdown(&self) -> Result<bool, LogError> {
        disk::remove_if_exists(&self.path.join(CLEAN_SHUTDOWN))
    }

    pub(crate) fn write_clean_shutdown(&self) -> Result<(), LogError> {
        disk::replace(
            &self.path.join(CLEAN_SHUTDOWN),
            CLEAN_SHUTDOWN_CONTENT,
            disk::Sync::Device,
        )
    }

    /// Lets other processes have it.
    pub(crate) fn unlock(&self) {
        if let Some(lock) = self.lock.lock().take() {
            let _ = std::fs::remove_file(self.path.join(LOCK));
            drop(lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let first = LogDirs::open(std::slice::from_ref(&path)).unwrap();
        let error = LogDirs::open(std::slice::from_ref(&path)).unwrap_err();
        assert!(matches!(error, StartError::Locked { .. }), "{error}");
        first.dirs[0].unlock();
        assert!(!path.join(LOCK).exists());
        LogDirs::open(std::slice::from_ref(&path)).unwrap();
    }

    #[test]
    fn identities() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        let dirs = LogDirs::open(&[a.clone(), b.clone()]).unwrap();
        assert_eq!(*dirs.identity(), StoredIdentity::default());
        dirs.check_identity("C1", 3).unwrap();
        assert!(!a.join(META_PROPERTIES).exists(), "checking writes nothing");
        dirs.write_identity("C1", 3, 0).unwrap();
        drop(dirs);
        let dirs = LogDirs::open(&[a.clone(), b.clone()]).unwrap();
        assert_eq!(dirs.identity().broker_id, Some(3));
        let before = std::fs::read(a.join(META_PROPERTIES)).unwrap();
        let error = dirs.write_identity("C2", 3, 99).unwrap_err().to_string();
        assert!(error.contains("C1") && error.contains("C2"), "{error}");
        let error = dirs.write_identity("C1", 4, 99).unwrap_err().to_string();
        assert!(error.contains("broker.id=3"), "{error}");
        assert_eq!(std::fs::read(a.join(META_PROPERTIES)).unwrap(), before);
        drop(dirs);
        let other = MetaProperties {
            broker_id: Some(9),
            cluster_id: Some("C1".into()),
            directory_id: None,
        };
        other.write(&b, 0).unwrap();
        let error = LogDirs::open(&[a, b]).unwrap_err().to_string();
        assert!(
            error.contains("broker.id is 3") && error.contains('9'),
            "{error}"
        );
    }

    #[test]
    fn a_directory_that_cannot_be_made() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let bad = file.join("sub");
        let error = LogDirs::open(std::slice::from_ref(&bad)).unwrap_err();
        assert!(matches!(error, StartError::AllFailed(_)), "{error}");
        let dirs = LogDirs::open(&[bad, root.path().join("good")]).unwrap();
        assert!(dirs.dirs[0].is_offline() && !dirs.dirs[1].is_offline());
    }
}
