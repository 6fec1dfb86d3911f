//! Notes whom a proposal met on which key: only when it was refused or has to wait.

use super::Shard;
use crate::Part;
use crate::validation::Verdict;
use datatypes::Mode;
use protocol::{Contention, ContentionStats, Pair};
use types::TransactionId;

impl Shard {
    /// Which keys transactions meet on here.
    pub(in crate::tapir) fn contention(&self) -> &ContentionStats {
        &self.contention
    }

    /// The same, to be reset.
    pub(in crate::tapir) fn contention_mut(&mut self) -> &mut ContentionStats {
        &mut self.contention
    }

    /// Notes a refusal for this one of a part's invocations. One that only asks for a later timestamp is none.
    pub(super) fn note_refusal(
        &mut self,
        id: TransactionId,
        part: &Part,
        verdict: Verdict,
        hint: Option<u32>,
    ) {
        if matches!(verdict, Verdict::Abstain | Verdict::Abort)
            && let Some(index) = hint
        {
            self.note_contention(id, part, index as usize, Contention::Conflict);
        }
    }

    /// Notes what this invocation met: something prepared, or else what has committed since it looked.
    pub(super) fn note_contention(
        &mut self,
        id: TransactionId,
        part: &Part,
        index: usize,
        contention: Contention,
    ) {
        let Some(invoked) = part.invocations.get(index) else { return };
        let Ok(access) = invoked.access() else { return };
        let Some(wanted) = access.invocation.mode() else { return };
        let mut prepared = self.prepared_on(&invoked.key, id);
        let met: Option<Mode> = prepared
            .find(|other| other.is_in_the_way_of(&access))
            .and_then(|other| other.access.invocation.mode());
        drop(prepared);
        self.contention.note(&invoked.key, Pair { wanted, met }, contention);
    }
}
