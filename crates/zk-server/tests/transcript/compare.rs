//! An answer beside the recorded one. Session ids, passwords and times differ from run to run; zxids must map to each other in
//! order; children and ids come in any order.

use super::Replay;
use gracchus_zk_proto::multi::{MultiResponse, MultiResult};
use gracchus_zk_proto::response::*;
use gracchus_zk_proto::{Jute, OpCode, Reader, Stat};

impl Replay {
    pub(super) fn zxid(&mut self, recorded: i64, ours: i64) -> Result<(), String> {
        if recorded <= 0 {
            return (recorded == ours)
                .then_some(())
                .ok_or(format!("zxid {ours}, recorded {recorded}"));
        }
        if let Some(known) = self.zxids.get(&recorded) {
            return (*known == ours)
                .then_some(())
                .ok_or(format!("zxid {ours} for 0x{recorded:x}, before {known}"));
        }
        let below = self
            .zxids
            .range(..recorded)
            .next_back()
            .map_or(0, |(_, ours)| *ours);
        let above = self
            .zxids
            .range(recorded..)
            .next()
            .map_or(i64::MAX, |(_, ours)| *ours);
        if ours <= below || ours >= above {
            return Err(format!(
                "zxid {ours} for 0x{recorded:x} is not between {below} and {above}"
            ));
        }
        self.zxids.insert(recorded, ours);
        Ok(())
    }

    /// The zxid that a recorded one stands for.
    pub(super) fn ours(&self, recorded: i64) -> i64 {
        match self.zxids.range(..=recorded).next_back() {
            Some((known, ours)) => ours + (recorded - known),
            None => recorded,
        }
    }

    pub(super) fn stat(&mut self, recorded: &Stat, ours: &Stat) -> Result<(), String> {
        for (a, b) in [
            (recorded.czxid, ours.czxid),
            (recorded.mzxid, ours.mzxid),
            (recorded.pzxid, ours.pzxid),
        ] {
            self.zxid(a, b)?;
        }
        let plain = |stat: &Stat| Stat {
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            ephemeral_owner: 0,
            ..*stat
        };
        let owner = self
            .sessions
            .get(&recorded.ephemeral_owner)
            .map_or(0, |(ours, _)| *ours);
        if plain(recorded) != plain(ours)
            || (recorded.ephemeral_owner != 0) != (ours.ephemeral_owner != 0)
            || (owner != 0 && owner != ours.ephemeral_owner)
        {
            return Err(format!("{ours:?}\n recorded {recorded:?}"));
        }
        Ok(())
    }

    pub(super) fn body(&mut self, code: i32, mut a: Reader, mut b: Reader) -> Result<(), String> {
        fn both<T: Jute>(a: &mut Reader, b: &mut Reader) -> Result<(T, T), String> {
            Ok((
                T::read(a).map_err(|e| format!("recorded: {e}"))?,
                T::read(b).map_err(|e| format!("ours: {e}"))?,
            ))
        }
        fn same<T: PartialEq + std::fmt::Debug>(a: T, b: T) -> Result<(), String> {
            (a == b)
                .then_some(())
                .ok_or_else(|| format!("{b:?}\n recorded {a:?}"))
        }
        fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
            items.sort();
            items
        }
        match OpCode::from_code(code) {
            Some(OpCode::Exists | OpCode::SetData | OpCode::SetAcl) => {
                let (x, y): (StatResponse, StatResponse) = both(&mut a, &mut b)?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl) => {
                let (x, y): (Create2Response, Create2Response) = both(&mut a, &mut b)?;
                same(x.path, y.path)?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::GetData) => {
                let (x, y): (GetDataResponse, GetDataResponse) = both(&mut a, &mut b)?;
                same(x.data, y.data)?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::GetChildren) => {
                let (x, y): (GetChildrenResponse, GetChildrenResponse) = both(&mut a, &mut b)?;
                same(sorted(x.children), sorted(y.children))?;
            }
            Some(OpCode::GetChildren2) => {
                let (x, y): (GetChildren2Response, GetChildren2Response) = both(&mut a, &mut b)?;
                same(sorted(x.children), sorted(y.children))?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::GetAcl) => {
                let (x, y): (GetAclResponse, GetAclResponse) = both(&mut a, &mut b)?;
                same(x.acl, y.acl)?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::GetEphemerals) => {
                let (x, y): (GetEphemeralsResponse, GetEphemeralsResponse) = both(&mut a, &mut b)?;
                same(sorted(x.paths), sorted(y.paths))?;
            }
            Some(OpCode::WhoAmI) => {
                let (x, y): (WhoAmIResponse, WhoAmIResponse) = both(&mut a, &mut b)?;
                let plain = |r: WhoAmIResponse| {
                    sorted(r.clients.into_iter().map(|c| (c.scheme, c.user)).collect())
                };
                same(plain(x), plain(y))?;
            }
            Some(OpCode::Multi | OpCode::MultiRead) => {
                let (x, y): (MultiResponse, MultiResponse) = both(&mut a, &mut b)?;
                same(x.results.len(), y.results.len())?;
                for (x, y) in x.results.into_iter().zip(y.results) {
                    match (x, y) {
                        (MultiResult::Create2(x), MultiResult::Create2(y)) => {
                            same(x.path, y.path)?;
                            self.stat(&x.stat, &y.stat)?;
                        }
                        (MultiResult::SetData(x), MultiResult::SetData(y)) => self.stat(&x, &y)?,
                        (MultiResult::GetData(x), MultiResult::GetData(y)) => {
                            same(x.data, y.data)?;
                            self.stat(&x.stat, &y.stat)?;
                        }
                        (MultiResult::GetChildren(x), MultiResult::GetChildren(y)) => {
                            same(sorted(x.children), sorted(y.children))?
                        }
                        (x, y) => same(x, y)?,
                    }
                }
            }
            _ => {}
        }
        same(a.rest(), b.rest())
    }
}
