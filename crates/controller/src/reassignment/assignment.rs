//! What a move makes of a partition's replicas. Plain rules.

use crate::context::Partition;

/// A partition's replicas, and what of them is on its way in or out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) replicas: Vec<i32>,
    pub(super) adding: Vec<i32>,
    pub(super) removing: Vec<i32>,
}

impl Assignment {
    pub(super) fn of(partition: &Partition) -> Self {
        Assignment {
            replicas: partition.replicas.clone(),
            adding: partition.adding.clone(),
            removing: partition.removing.clone(),
        }
    }

    pub(super) fn settled(replicas: Vec<i32>) -> Self {
        Assignment {
            replicas,
            adding: Vec::new(),
            removing: Vec::new(),
        }
    }

    pub(super) fn is_moving(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// Before the move.
    pub(super) fn origin(&self) -> Vec<i32> {
        without(&self.replicas, &self.adding)
    }

    /// After it.
    pub(super) fn target(&self) -> Vec<i32> {
        without(&self.replicas, &self.removing)
    }

    /// A move to `target` begins; one that is under way is turned.
    pub(super) fn to(&self, target: &[i32]) -> Self {
        let origin = self.origin();
        let removing = without(&origin, target);
        Assignment {
            replicas: target.iter().chain(&removing).copied().collect(),
            adding: without(target, &origin),
            removing,
        }
    }
}

pub(super) fn without(list: &[i32], gone: &[i32]) -> Vec<i32> {
    let kept = list.iter().copied().filter(|b| !gone.contains(b));
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_begins_turns_and_is_given_up() {
        let start = Assignment::settled(vec![1, 2]);
        let moving = start.to(&[3, 2]);
        let expected = Assignment {
            replicas: vec![3, 2, 1],
            adding: vec![3],
            removing: vec![1],
        };
        assert_eq!(moving, expected);
        assert_eq!((moving.origin(), moving.target()), (vec![2, 1], vec![3, 2]));
        let turned = moving.to(&[4]);
        assert_eq!(turned.replicas, [4, 2, 1]);
        assert_eq!((turned.adding, turned.removing), (vec![4], vec![2, 1]));
        let given_up = moving.to(&moving.origin());
        assert_eq!(given_up, Assignment::settled(vec![2, 1]));
        assert!(!given_up.is_moving());
    }
}
