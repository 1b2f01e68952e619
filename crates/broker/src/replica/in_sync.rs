//! A leader's in-sync set: what the controller (or ZooKeeper) has confirmed, and at most one proposed change of it
//! (KIP-497). Plain rules, no I/O.
//!
//! What has to be on every in-sync replica is held to the larger of the two: a replica that is about to join counts at
//! once, one that is about to leave counts until that is confirmed.

/// A change that is not confirmed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Joins(i32),
    Leave(Vec<i32>),
}

/// The set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InSync {
    confirmed: Vec<i32>,
    change: Option<Change>,
}

impl InSync {
    /// As the controller gave it.
    pub fn new(confirmed: Vec<i32>) -> Self {
        Self {
            confirmed,
            change: None,
        }
    }

    /// What is known to be in ZooKeeper.
    pub fn confirmed(&self) -> &[i32] {
        &self.confirmed
    }

    /// A change is under way; there is no other until its end.
    pub fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    /// Members, and those about to be.
    pub fn counts(&self, replica: i32) -> bool {
        self.confirmed.contains(&replica) || self.change == Some(Change::Joins(replica))
    }

    /// How many [`Self::counts`] accepts.
    pub fn most(&self) -> usize {
        self.confirmed.len() + usize::from(matches!(self.change, Some(Change::Joins(_))))
    }

    /// The set with the change under way.
    pub fn proposed(&self) -> Vec<i32> {
        let mut proposed = self.confirmed.clone();
        match &self.change {
            None => {}
            Some(Change::Joins(replica)) => proposed.push(*replica),
            Some(Change::Leave(replicas)) => proposed.retain(|id| !replicas.contains(id)),
        }
        proposed
    }

    /// Proposes that a replica joins; false while another change is under way, or if it is a member.
    pub fn propose_joining(&mut self, replica: i32) -> bool {
        let may = !self.is_changing() && !self.confirmed.contains(&replica);
        if may {
            self.change = Some(Change::Joins(replica));
        }
        may
    }

    /// Proposes that replicas leave; false while another change is under way, or if none is a member.
    pub fn propose_leaving(&mut self, replicas: Vec<i32>) -> bool {
        let may = !self.is_changing() && replicas.iter().any(|id| self.confirmed.contains(id));
        if may {
            self.change = Some(Change::Leave(replicas));
        }
        may
    }

    /// The change was refused for good.
    pub fn take_back(&mut self) {
        self.change = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joining_replica_counts_at_once_and_a_leaving_one_to_the_end() {
        let mut set = InSync::new(vec![1, 2]);
        assert!(!set.propose_joining(2), "a member");
        assert!(set.propose_joining(3));
        assert!(set.counts(3) && set.most() == 3);
        assert_eq!(set.confirmed(), [1, 2]);
        assert_eq!(set.proposed(), [1, 2, 3]);
        assert!(!set.propose_leaving(vec![2]), "one change at a time");
        set.take_back();
        assert!(!set.counts(3));
        assert!(set.propose_leaving(vec![2]));
        assert!(set.counts(2) && set.most() == 2);
        assert_eq!(set.proposed(), [1]);
        assert!(!set.propose_joining(3));
    }
}
